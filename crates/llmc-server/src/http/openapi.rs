//! `GET /openapi.json`: the routes, for generators of clients and tests.

use llmc_config::DefaultScope;
use llmc_tools::{App, ROWS};
use serde_json::{Map, Value, json};

/// The document; it does not change while the server runs.
pub(super) fn document(app: &App) -> Value {
    let config = &app.config().mcp;
    let mut paths = json!({
        "/health": {"get": public(operation(
            "health", "Whether the server works, and what confines its programs.", ok(reference("Health")), &[],
        ))},
        "/tool": {"post": with_body(
            operation(
                "tool", "Call a tool.", ok(reference("ToolAnswer")),
                &tool_statuses(),
            ),
            "ToolCall",
        )},
        "/rag/search": {"post": with_body(
            operation("rag_search", "Search the code.", ok(reference("SearchAnswer")), &tool_statuses()),
            "Search",
        )},
        "/rag/bootload": {"post": with_body(
            operation("rag_bootload", "What to look at first for a task.", ok(reference("BootloadAnswer")), &tool_statuses()),
            "Bootload",
        )},
        "/invoke_agent": {"post": with_body(
            operation("invoke_agent", "Hand a message over, get context for it.", ok(reference("AgentAnswer")), &tool_statuses()),
            "Invoke",
        )},
        "/mcp": {"post": with_body(
            operation(
                "mcp", "MCP over Streamable HTTP: one JSON-RPC message.",
                json!({
                    "description": "The answer, alone or after progress notes.",
                    "content": {
                        "application/json": {"schema": {"type": "object"}},
                        "text/event-stream": {"schema": {"type": "string"}},
                    },
                }),
                &[400, 404, 406, 422, 500],
            ),
            "Message",
        )},
        "/openapi.json": {"get": operation("openapi", "This document.", ok(json!({"type": "object"})), &[])},
        "/api/events": {"get": operation(
            "events",
            "Server-sent events: `call` (schema Call) for every finished call, `gauges` (schema Gauges) at once and then \
             every two seconds, `missed` with `{\"calls\": n}` for a reader that was too slow.",
            json!({"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}),
            &[422],
        )},
        "/api/summary": {"get": operation("summary", "All calls since the start.", ok(reference("Summary")), &[404, 422, 500])},
        "/api/config": {"get": operation("config", "Every setting with its source, secrets masked.", ok(reference("Config")), &[])},
        "/api/handles": {"get": with_numbers(
            operation("handles", "Stored results of this token, newest first.", ok(reference("Handles")), &[422, 500]),
            &[("limit", 1000)],
        )},
        "/api/handles/{handle}": {"get": with_numbers(
            operation("handle", "A page of a stored result.", ok(reference("Page")), &[403, 404, 410, 413, 422, 500, 504]),
            &[("offset", i64::MAX), ("limit", 1 << 20)],
        )},
        "/api/history": {"get": with_numbers(
            operation(
                "history", "What calls of this token changed, newest first.", ok(reference("History")),
                &[403, 422, 500, 503],
            ),
            &[("limit", 200)],
        )},
        "/api/history/{entry}": {"get": operation(
            "history_entry", "One entry with a diff of each file.", ok(reference("HistoryDetail")),
            &[403, 404, 422, 500, 503],
        )},
        "/api/history/{entry}/undo": {"post": with_body(
            operation(
                "history_undo", "Undo an entry, or say what that would do (dry_run).", ok(reference("Undone")),
                &[403, 404, 409, 422, 500, 503, 504],
            ),
            "UndoBody",
        )},
        "/api/calls": {"get": with_numbers(
            operation("calls", "Recorded calls of every server, newest first.", ok(reference("Calls")), &[404, 422, 500]),
            &[("limit", 200), ("cursor", i64::MAX), ("after", i64::MAX)],
        )},
        "/api/calls/{id}": {"get": operation(
            "call", "One of them, with the start of its arguments and its answer.", ok(reference("CallDetail")),
            &[404, 422, 500],
        )},
        "/api/savings": {"get": with_numbers(
            operation(
                "savings", "Tokens served and kept out of contexts, by day, client, tool and upstream.", ok(reference("Savings")),
                &[404, 422, 500],
            ),
            &[("days", 3650), ("east", 1440), ("west", 1440)],
        )},
        "/api/activity": {"get": operation(
            "activity", "What every server of the workspace is doing now, and the sessions of the last day.",
            ok(reference("Activity")), &[500],
        )},
        "/api/activity/{server}/{target}/output": {"get": with_numbers(
            operation(
                "activity_output", "What a process (p_…) or the program of a call (c12) has printed.",
                ok(reference("RunningOutput")), &[404, 422, 500, 504],
            ),
            &[("offset", i64::MAX)],
        )},
        "/api/activity/{server}/{target}/stop": {"post": with_body(
            operation(
                "activity_stop", "End a process with its children, or cancel a call.", ok(reference("Stopped")),
                &[403, 404, 422, 500, 504],
            ),
            "StopBody",
        )},
        "/api/session": {"get": public(operation(
            "session", "Whether this browser is signed in.", ok(reference("BrowserSession")), &[],
        ))},
    });
    paths["/mcp"]["post"]["responses"]["202"] =
        json!({"description": "A notification was accepted."});
    let mut end_session = operation(
        "mcp_end_session",
        "End an MCP session.",
        Value::Null,
        &[404],
    );
    end_session["parameters"] = json!([{
        "name": "Mcp-Session-Id", "in": "header", "required": false, "schema": {"type": "string"},
    }]);
    if let Some(responses) = end_session["responses"].as_object_mut() {
        responses.remove("200");
        responses.insert(
            "204".to_owned(),
            json!({"description": "The session has ended."}),
        );
    }
    paths["/mcp"]["delete"] = end_session;
    // Failures are JSON-RPC errors there, but for those before the body is read.
    for method in ["post", "delete"] {
        let responses = paths["/mcp"][method]["responses"].as_object_mut();
        for (status, response) in responses.into_iter().flatten() {
            if status.starts_with(['4', '5']) {
                response["content"]["application/json"]["schema"] = json!({"type": "object"});
            }
        }
    }
    paths["/api/handles/{handle}"]["get"]["parameters"]
        .as_array_mut()
        .into_iter()
        .for_each(|parameters| {
            parameters.push(json!({
                "name": "handle", "in": "path", "required": true, "schema": {"type": "string"},
                "example": "res_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            }));
        });
    let parameter = |name: &str, place: &str| {
        let is_in_path = place == "path";
        json!({"name": name, "in": place, "required": is_in_path, "schema": {"type": "string"}})
    };
    if let Some(parameters) = paths["/api/history"]["get"]["parameters"].as_array_mut() {
        parameters.extend(["before", "path", "session"].map(|name| parameter(name, "query")));
    }
    for (path, method) in [
        ("/api/history/{entry}", "get"),
        ("/api/history/{entry}/undo", "post"),
    ] {
        paths[path][method]["parameters"] = json!([parameter("entry", "path")]);
    }
    if let Some(parameters) = paths["/api/calls"]["get"]["parameters"].as_array_mut() {
        let names = ["query", "tool", "client", "session", "server", "failed"];
        parameters.extend(names.map(|name| parameter(name, "query")));
    }
    let of =
        json!({"name": "of", "in": "query", "required": false, "schema": {"enum": ["workspace"]}});
    for path in ["/api/events", "/api/summary"] {
        paths[path]["get"]["parameters"] = json!([of]);
    }
    paths["/api/calls/{id}"]["get"]["parameters"] = json!([parameter("id", "path")]);
    let on_server = ["server", "target"].map(|name| parameter(name, "path"));
    paths["/api/activity/{server}/{target}/stop"]["post"]["parameters"] = json!(on_server);
    let output = &mut paths["/api/activity/{server}/{target}/output"]["get"]["parameters"];
    if let Some(parameters) = output.as_array_mut() {
        parameters.extend(on_server);
    }
    if let Ok(Some(path)) = super::metrics_path(app) {
        paths[path] = json!({"get": operation(
            "metrics", "Counters and histograms for Prometheus.",
            json!({"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}), &[],
        )});
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "LLMC",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Tools for coding agents. Every answer carries X-Correlation-Id; every failure is an Error.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "headers": {"CorrelationId": {
                "description": "The request's own id where it had one, else a new one.",
                "schema": {"type": "string"},
            }},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": config.auth.header},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    });
    if config.auth.mode != llmc_config::AuthMode::None {
        document["security"] = json!([{"token": []}, {"bearer": []}]);
    }
    document
}

/// An operation behind the gates, with the errors of the gates.
fn operation(id: &str, summary: &str, success: Value, statuses: &[u16]) -> Value {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), success);
    let gates = [400, 401, 403, 405, 408, 413, 429, 431, 503];
    for status in gates.iter().chain(statuses) {
        responses.insert(status.to_string(), error(*status));
    }
    for response in responses.values_mut() {
        response["headers"]["X-Correlation-Id"] =
            json!({"$ref": "#/components/headers/CorrelationId"});
    }
    json!({"operationId": id, "summary": summary, "responses": responses})
}

fn error(status: u16) -> Value {
    let row = ROWS.iter().find(|row| row.http == status);
    let description = match status {
        400 => "not JSON, not UTF-8, or ambiguous JSON",
        403 => "refused: a Host or Origin that is not allowed, or what this token may not do",
        404 => "not found",
        405 => "method not allowed",
        406 => "both application/json and text/event-stream must be accepted",
        408 => "the body took too long",
        413 => "too large",
        415 => "not plain JSON",
        422 => "invalid arguments",
        431 => "headers too large",
        503 => "shutting down",
        _ => row.map_or("failed", |row| row.what),
    };
    let mut response = json!({
        "description": description,
        "content": {"application/json": {"schema": reference("Error")}},
    });
    if status == 429 {
        response["headers"]["Retry-After"] =
            json!({"schema": {"type": "integer"}, "description": "seconds"});
    }
    response
}

/// Every status of a tool's errors.
fn tool_statuses() -> Vec<u16> {
    let mut statuses: Vec<u16> = ROWS.iter().map(|row| row.http).chain([415, 422]).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn public(mut operation: Value) -> Value {
    operation["security"] = json!([]);
    operation
}

fn with_body(mut operation: Value, schema: &str) -> Value {
    operation["requestBody"] = json!({
        "required": true,
        "content": {"application/json": {"schema": reference(schema)}},
    });
    operation["responses"]["415"] = error(415);
    operation["responses"]["415"]["headers"]["X-Correlation-Id"] =
        json!({"$ref": "#/components/headers/CorrelationId"});
    operation
}

fn with_numbers(mut operation: Value, parameters: &[(&str, i64)]) -> Value {
    let parameters = parameters.iter().map(|(name, most)| {
        json!({
            "name": name, "in": "query", "required": false,
            "schema": {"type": "integer", "minimum": 0, "maximum": most},
        })
    });
    operation["parameters"] = parameters.collect();
    operation
}

fn ok(schema: Value) -> Value {
    json!({"description": "Done.", "content": {"application/json": {"schema": schema}}})
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// An object; a name that ends in `?` is optional, and the rest is required.
fn object(properties: &[(&str, Value)]) -> Value {
    let name = |text: &str| text.trim_end_matches('?').to_owned();
    let required = properties.iter().filter(|(text, _)| !text.ends_with('?'));
    json!({
        "type": "object",
        "required": required.map(|(text, _)| name(text)).collect::<Vec<_>>(),
        "properties": properties.iter()
            .map(|(text, schema)| (name(text), schema.clone()))
            .collect::<Map<_, _>>(),
    })
}

/// A request body: no other members are allowed.
fn closed(properties: &[(&str, Value)]) -> Value {
    let mut object = object(properties);
    object["additionalProperties"] = false.into();
    object
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn schemas() -> Value {
    let text = || json!({"type": "string"});
    let maybe_text = || json!({"type": ["string", "null"]});
    let whole = || json!({"type": "integer"});
    let count = || json!({"type": "integer", "minimum": 0});
    let flag = || json!({"type": "boolean"});
    let anything = || json!({});
    let actions = || json!({"enum": ["created", "changed", "deleted", "moved"]});
    let history_entry = |more: &[(&'static str, Value)]| {
        let mut members = vec![
            ("id", text()),
            ("time", text()),
            ("agent", text()),
            ("session", text()),
            ("tool", text()),
            ("args", text()),
            ("source", json!({"enum": ["call", "outside", "undo"]})),
            ("shared", flag()),
            ("undoes", list(text())),
            ("undone_by", maybe_text()),
            ("undone", count()),
            ("not_undoable", maybe_text()),
            ("head", json!({"type": ["object", "null"]})),
            ("not_kept", count()),
            ("ignored", count()),
            (
                "counts",
                object(&[
                    ("created", count()),
                    ("changed", count()),
                    ("deleted", count()),
                    ("moved", count()),
                ]),
            ),
            (
                "files",
                list(object(&[
                    ("path", text()),
                    ("action", actions()),
                    ("from", maybe_text()),
                    ("kept", flag()),
                ])),
            ),
        ];
        members.extend_from_slice(more);
        object(&members)
    };
    let snippet = object(&[
        ("text", text()),
        ("src", text()),
        ("score", json!({"type": "number"})),
    ]);
    let index = || json!({"type": "string", "enum": ["ready", "building", "none"]});
    let scope = || json!({"type": "string", "enum": DefaultScope::NAMES});
    let quantile = || json!({"type": ["number", "null"]});
    let latency = object(&[
        ("p50", quantile()),
        ("p95", quantile()),
        ("p99", quantile()),
    ]);
    json!({
        "Error": object(&[
            ("code", text()), ("message", text()), ("hint", maybe_text()), ("correlation_id", text()),
            ("error_code?", text()),
        ]),
        "Health": object(&[
            ("ok", flag()), ("version", json!({"const": "v0"})), ("confinement", text()), ("profile", text()),
            ("index", index()), ("index_progress?", anything()), ("index_error?", text()),
        ]),
        "ToolCall": closed(&[
            ("session_id?", text()), ("name", text()), ("args?", json!({"type": "object"})),
        ]),
        "ToolAnswer": object(&[
            ("data", anything()),
            ("meta", object(&[("correlation_id", text()), ("truncated?", flag()), ("handle?", text()), ("path?", text()), ("length?", count())])),
        ]),
        "Search": closed(&[
            ("q", text()), ("scope?", scope()), ("k?", json!({"type": "integer", "minimum": 1})),
            ("budget_tokens?", json!({"type": "integer", "minimum": 1})), ("session_id?", text()),
        ]),
        "SearchAnswer": object(&[
            ("snippets", list(snippet.clone())), ("provenance", flag()), ("freshness?", anything()),
            ("index", index()), ("clamped?", anything()), ("truncated?", flag()), ("note?", text()),
        ]),
        "Bootload": closed(&[("session_id", text()), ("task_id", text())]),
        "BootloadAnswer": object(&[
            ("plan", anything()), ("scope", scope()), ("notes", anything()), ("snippets?", list(snippet.clone())),
            ("provenance?", flag()),
        ]),
        "Invoke": closed(&[
            ("session_id", text()), ("user_msg", text()), ("role?", maybe_text()), ("inject_context?", maybe_text()),
        ]),
        "AgentAnswer": object(&[("text", text()), ("context?", list(snippet))]),
        "Message": {
            "type": "object",
            "required": ["jsonrpc", "method"],
            "properties": {
                "jsonrpc": {"const": "2.0"}, "method": text(), "id": {"type": ["string", "integer"]},
                "params": {"type": "object"},
            },
        },
        "Tokens": object(&[("in", count()), ("served", count()), ("withheld", count()), ("fetched_back", count())]),
        "Call": object(&[
            ("ts", text()), ("correlation_id", text()), ("source", text()), ("principal", text()), ("agent", text()),
            ("session", text()), ("model", text()), ("tool", text()), ("status", json!({"enum": ["ok", "error"]})),
            ("error_code", maybe_text()), ("duration_ms", json!({"type": "number"})), ("path", maybe_text()),
            ("truncated", flag()), ("handle", maybe_text()), ("tokens_in", count()), ("tokens_served", count()),
            ("tokens_withheld", count()), ("tokens_fetched_back", count()),
        ]),
        "Calls": object(&[("calls", list(reference("RecordedCall"))), ("next", json!({"type": ["integer", "null"]}))]),
        "RecordedCall": {"allOf": [reference("Call"), object(&[
            ("id", count()), ("server", text()), ("client", maybe_text()), ("entry", maybe_text()), ("args", maybe_text()),
            ("bytes_in", count()), ("bytes_out", count()),
        ])]},
        "CallDetail": {"allOf": [reference("RecordedCall"), object(&[
            ("contents", json!({"type": ["object", "null"], "properties": {
                "args": text(), "args_cut": flag(), "answer": text(), "answer_cut": flag(),
            }})),
            ("keeps_contents", flag()),
        ])]},
        "Savings": object(&[
            ("days", list(reference("SavingsGroup"))), ("clients", list(reference("SavingsGroup"))),
            ("tools", list(reference("SavingsGroup"))), ("upstreams", list(reference("UpstreamLedger"))),
        ]),
        "UpstreamLedger": {"allOf": [object(&[
            ("upstream", text()), ("list_tokens", count()), ("list_avoided", count()), ("read_by_scripts", count()),
        ]), reference("Totals")]},
        "SavingsGroup": {"allOf": [object(&[("name", text())]), reference("Totals")]},
        "Activity": object(&[("servers", list(json!({"type": "object"}))), ("sessions", list(json!({"type": "object"})))]),
        "RunningOutput": object(&[
            ("text", text()), ("offset", count()), ("next", count()), ("dropped", count()), ("running", flag()),
            ("exit_code", json!({"type": ["integer", "null"]})), ("signal", json!({"type": ["integer", "null"]})),
        ]),
        "Stopped": object(&[("ok", flag())]),
        "StopBody": closed(&[]),
        "BrowserSession": object(&[("signed_in", flag()), ("takes_token", flag())]),
        "Totals": object(&[("calls", count()), ("errors", count()), ("tokens", reference("Tokens"))]),
        "Gauges": object(&[
            ("totals", reference("Totals")), ("requests_in_progress", count()), ("connections", count()),
            ("watchers", count()), ("auth_failures", count()), ("rate_limited", count()), ("uptime_s", count()),
            ("events_dropped", count()), ("index_progress", json!({"type": ["object", "null"]})),
            ("handles", json!({"type": ["object", "null"], "properties": {"count": count(), "bytes": count()}})),
        ]),
        "Summary": object(&[
            ("server", object(&[
                ("program", text()), ("mode", text()), ("confinement", text()), ("profile", text()), ("index", index()),
                ("read_only", flag()), ("workspace", text()), ("principal", text()), ("sees_all", flag()),
                ("counting", flag()),
            ])),
            ("totals", reference("Totals")),
            ("latency_ms", latency.clone()),
            ("tools", list(object(&[
                ("tool", text()), ("calls", count()), ("errors", count()), ("latency_ms", latency),
                ("tokens", reference("Tokens")),
            ]))),
            ("errors", list(object(&[("code", text()), ("count", count())]))),
            ("upstreams", list(reference("UpstreamLedger"))),
            ("sessions", list(object(&[
                ("session", text()), ("agent", text()), ("model", text()), ("principal", text()), ("calls", count()),
                ("errors", count()), ("tokens", reference("Tokens")), ("first", text()), ("last", text()),
            ]))),
            ("over_time", object(&[
                ("step_s", count()),
                ("steps", list(object(&[
                    ("at", whole()), ("calls", count()), ("errors", count()), ("tokens", reference("Tokens")),
                ]))),
            ])),
            ("recent", list(reference("Call"))),
            ("gauges", reference("Gauges")),
        ]),
        "Config": object(&[
            ("file", maybe_text()),
            ("entries", list(object(&[
                ("key", text()), ("value", maybe_text()), ("source", text()), ("secret", flag()),
            ]))),
        ]),
        "Handles": object(&[
            ("handles", list(object(&[
                ("handle", text()), ("kind", text()), ("total_bytes", count()), ("created", text()), ("expires", text()),
                ("meta", json!({"type": "object"})),
            ]))),
            ("total", count()),
        ]),
        "HistoryEntry": history_entry(&[]),
        "History": object(&[("entries", list(reference("HistoryEntry"))), ("next", maybe_text())]),
        "HistoryDetail": history_entry(&[
            ("changes", list(object(&[
                ("path", text()), ("action", actions()), ("from", maybe_text()), ("kept", flag()),
                ("before", json!({"type": "object"})), ("after", json!({"type": "object"})), ("shared", flag()),
                ("undone_by", maybe_text()), ("diff", text()), ("note", maybe_text()),
            ]))),
            ("more_files", count()), ("steps", list(text())),
        ]),
        "UndoBody": closed(&[("paths?", list(text())), ("dry_run?", flag()), ("atomic?", flag())]),
        "Undone": object(&[
            ("entry", maybe_text()), ("undone", list(text())), ("restored", list(text())),
            ("conflicts", list(object(&[("path", text()), ("why", text())]))), ("shared", list(text())),
            ("not_kept", list(object(&[("path", text()), ("why", text())]))), ("git_command?", text()), ("dry_run", flag()),
        ]),
        "Page": object(&[
            ("data", text()), ("encoding", json!({"enum": ["utf-8", "base64"]})), ("offset", count()), ("length", count()),
            ("total_bytes", count()), ("eof", flag()), ("stale", flag()), ("meta", json!({"type": "object"})),
        ]),
    })
}
