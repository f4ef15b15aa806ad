//! What a query may cost in dollars, tokens and time, and that nothing goes on after it was stopped.

use llmc_testkit::{ModelAction, ModelServer, TestWorkspace};
use serde_json::{Value, json};

use super::{ask, client, code_of, fail, leading, with_models};

/// Models that cost ten dollars per million tokens received and nothing else.
fn dear(server: &ModelServer, more: &str) -> TestWorkspace {
    let workspace = with_models(server, "");
    workspace.write(
        "llmc.toml",
        format!(
            "[mcp]\nmode = \"classic\"\n[mcp.rlm]\nallowed_model_prefixes = [\"openai/\"]\n{more}\
             [rlm]\nmodel = \"openai/lead\"\nsub_model = \"openai/part\"\nbase_url = \"{}\"\ndirect_tokens = 0\n\
             price_per_mtok_in = 0\nprice_per_mtok_out = 10\n",
            server.url()
        ),
    );
    workspace
}

const BATCH: &str = "print(llm_query_batched(['p'] * 40))\nFINAL('went on')";

#[test]
fn a_dollar_cap_strikes_in_the_middle_of_a_batch_before_the_money_is_spent() {
    // Every answer is as long as it may be: 2,048 tokens, two cents.
    let server = leading(&[BATCH], |asked| {
        let most = asked.body["max_tokens"].as_u64().unwrap();
        ModelAction::SayCounting("long".into(), [10, most, 0])
    });
    let workspace = dear(&server, "");
    let error = fail(&workspace, json!({"budget_usd": 0.25}));
    assert_eq!(code_of(&error), "budget_exceeded");
    assert_eq!(error["meta"]["retryable"], false);
    let budget = &error["meta"]["budget_summary"];
    let cost = budget["total_cost_usd"].as_f64().unwrap();
    assert!(cost > 0.15 && cost <= 0.25, "{budget}");
    let parts = server
        .requests()
        .iter()
        .filter(|one| one.model() == "part")
        .count();
    assert!((8..=13).contains(&parts), "{parts} parts were asked");
    assert!(!error.to_string().contains("went on"));
}

#[test]
fn a_token_cap_holds_for_models_that_cost_nothing() {
    let server = leading(&[BATCH], |asked| {
        let most = asked.body["options"]["num_predict"].as_u64().unwrap();
        ModelAction::SayCounting("long".into(), [10, most, 0])
    });
    let workspace = with_models(&server, "token_budget = 30000\n");
    let error = fail(&workspace, json!({}));
    assert_eq!(code_of(&error), "budget_exceeded");
    assert!(
        error["meta"]["hint"]
            .as_str()
            .unwrap()
            .contains("rlm.token_budget"),
        "{error}"
    );
    let budget = &error["meta"]["budget_summary"];
    let tokens = budget["tokens_in"].as_u64().unwrap() + budget["tokens_out"].as_u64().unwrap();
    assert!(tokens > 10_000 && tokens <= 30_000, "{budget}");
}

#[test]
fn children_spend_from_the_same_purse() {
    let server = ModelServer::start(|asked| {
        if asked.model() == "lead" {
            return ModelAction::code("for i in range(20):\n    rlm_query('again', 0, 5000)");
        }
        let most = asked.body["max_tokens"].as_u64().unwrap();
        ModelAction::SayCounting(
            "```python\nFINAL('child')\n```".into(),
            [10, most.min(3_000), 0],
        )
    });
    let workspace = dear(&server, "");
    let error = fail(&workspace, json!({"budget_usd": 0.2}));
    assert_eq!(code_of(&error), "budget_exceeded");
    assert!(
        error["meta"]["budget_summary"]["total_cost_usd"]
            .as_f64()
            .unwrap()
            <= 0.2
    );
    assert!(server.requests().len() <= 9, "{}", server.requests().len());
}

#[test]
fn partial_answers_are_for_operators_who_ask_for_them() {
    let part = |asked: &llmc_testkit::ModelRequest| {
        let most = asked.body["max_tokens"].as_u64().unwrap();
        ModelAction::SayCounting("yes".into(), [10, most.min(2_000), 0])
    };
    let code = "n = 0\ntry:\n    while True:\n        llm_query('p')\n        n = n + 1\nexcept RuntimeError as e:\n    FINAL(f'after {n}')";
    let server = leading(&[code], part);
    let workspace = dear(&server, "");
    assert_eq!(
        code_of(&fail(&workspace, json!({"budget_usd": 0.2}))),
        "budget_exceeded"
    );
    let server = leading(&[code], part);
    let workspace = dear(&server, "allow_partial = true\n");
    let args = json!({"task": "?", "path": "hay.txt", "budget_usd": 0.2});
    let answer = client(&workspace).json("rlm_query", args);
    assert!(
        answer["data"]["answer"]
            .as_str()
            .unwrap()
            .starts_with("after "),
        "{answer}"
    );
    assert_eq!(answer["meta"]["partial"], true);
    assert!(
        answer["meta"]["partial_reason"]
            .as_str()
            .unwrap()
            .contains("dollar cap")
    );
    // The audit has what it cost, of both models.
    let spent = answer["data"]["budget_summary"]["total_cost_usd"].as_f64();
    let audit = workspace.read(".llmc/rlm_audit.csv");
    let mut reader = csv::Reader::from_reader(audit.as_bytes());
    let titles = reader.headers().unwrap().clone();
    let at = |name: &str| titles.iter().position(|title| title == name).unwrap();
    let row = reader.records().next().unwrap().unwrap();
    let cost: f64 = row[at("cost_usd")].parse().unwrap();
    assert!(
        spent.is_some_and(|spent| spent > 0.0 && (spent - cost).abs() < 1e-8),
        "{audit}"
    );
    assert!(
        row[at("models")].starts_with("openai/lead=1 openai/part="),
        "{audit}"
    );
    // A script can tell a partial answer from a whole one.
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    let code = "r = tools.rlm_query(task='?', path='hay.txt', budget_usd=0.2)\nprint(r['meta']['partial'], r['meta']['partial_reason'])";
    let text = client.text("execute_code", json!({"code": code}));
    assert!(
        text.starts_with("True ") && text.contains("dollar cap"),
        "{text}"
    );
}

#[test]
fn a_model_of_unknown_price_is_refused_with_the_key_to_set() {
    let server = leading(&["FINAL('x')"], |_| ModelAction::Die);
    let toml = |model: &str| {
        format!(
            "[mcp]\nmode = \"classic\"\n[mcp.rlm]\nallowed_model_prefixes = [\"openai/\"]\n[rlm]\nmodel = \"{model}\"\n\
             base_url = \"{}\"\ndirect_tokens = 0\n",
            server.url()
        )
    };
    let workspace = with_models(&server, "");
    workspace.write("llmc.toml", toml("openai/lead"));
    let error = fail(&workspace, json!({}));
    assert_eq!(code_of(&error), "budget_exceeded");
    assert!(
        error["meta"]["hint"]
            .as_str()
            .unwrap()
            .contains("rlm.price_per_mtok_in"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 0);
    let mut client = workspace.mcp([
        "--set",
        "rlm.price_per_mtok_in=1",
        "--set",
        "rlm.price_per_mtok_out=1",
    ]);
    client.initialize("2025-11-25");
    let answer = client.json("rlm_query", json!({"task": "?", "path": "hay.txt"}));
    let budget = &answer["data"]["budget_summary"];
    let tokens = budget["tokens_in"].as_f64().unwrap() + budget["tokens_out"].as_f64().unwrap();
    let cost = budget["total_cost_usd"].as_f64().unwrap();
    assert!((cost - tokens / 1e6).abs() < 1e-8, "{budget}");
}

#[test]
fn the_time_limit_is_over_everything() {
    let silent = ModelServer::start(|_| ModelAction::Hang);
    let workspace = with_models(&silent, "");
    let error = fail(&workspace, json!({"timeout_s": 1}));
    assert_eq!(code_of(&error), "timeout");
    assert_eq!(error["meta"]["retryable"], true);
    silent.wait_for_hang_ups(1);
    let endless = super::alone(&["while True:\n    pass"]);
    let workspace = with_models(&endless, "");
    let error = fail(&workspace, json!({"timeout_s": 2}));
    assert_eq!(code_of(&error), "timeout");
    let busy = ModelServer::start(|_| ModelAction::Busy(1_000));
    let workspace = with_models(&busy, "");
    assert_eq!(
        code_of(&fail(&workspace, json!({"timeout_s": 5}))),
        "provider_error"
    );
    assert_eq!(busy.requests().len(), 1);
}

#[test]
fn cancelling_stops_every_call_at_once() {
    let server = leading(&["llm_query_batched(['p'] * 30)"], |_| ModelAction::Hang);
    let workspace = with_models(&server, "");
    let mut client = client(&workspace);
    let id = client.send_call("rlm_query", json!({"task": "?", "path": "hay.txt"}));
    server.wait_for(9);
    client.notify("notifications/cancelled", json!({"requestId": id}));
    server.wait_for_hang_ups(8);
    // The server still serves, and asked for nothing more.
    client.text("list_dir", json!({"path": "."}));
    assert_eq!(server.requests().len(), 9);
    client.finish();
    let audit = workspace.read(".llmc/rlm_audit.csv");
    assert!(
        audit
            .trim_end()
            .ends_with(",cancelled,ollama/lead=1 ollama/part=8"),
        "{audit}"
    );
}

#[test]
fn a_provider_failure_reports_what_was_spent() {
    let server = leading(&["FINAL(llm_query('p'))", "FINAL('never')"], |_| {
        ModelAction::Status(400, "{\"error\":{\"message\":\"no such model\"}}".into())
    });
    let workspace = with_models(&server, "");
    // Code gets the error, and may go on.
    assert_eq!(ask(&workspace)["data"]["answer"], "never");
    assert!(
        server.requests()[2]
            .prompt()
            .contains("provider_error: ollama: answered 400: no such model")
    );
    // A refusal of the leading model ends the analysis, and the same call would be refused again.
    let refuses = ModelAction::Status(400, "{\"error\":{\"message\":\"no such model\"}}".into());
    let server = ModelServer::saying([refuses]);
    let error = fail(&with_models(&server, ""), json!({}));
    assert_eq!(code_of(&error), "provider_error");
    assert_eq!(error["meta"]["retryable"], false, "{error}");
    // The leading model is not dispensable.
    let server = ModelServer::saying([ModelAction::code("print(1)"), ModelAction::Garbage]);
    let workspace = with_models(&server, "");
    let error = fail(&workspace, json!({}));
    assert_eq!(code_of(&error), "provider_error");
    assert_eq!(error["meta"]["provider"], "ollama");
    let row: &Value = &error["meta"]["budget_summary"]["by_model"][0];
    assert_eq!(
        (&row["calls"], &row["unconfirmed_calls"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn a_busy_provider_is_asked_again() {
    let server = ModelServer::saying([
        ModelAction::Busy(0),
        ModelAction::Status(503, String::new()),
        ModelAction::code("FINAL('in the end')"),
    ]);
    let workspace = with_models(&server, "");
    let answer = ask(&workspace);
    assert_eq!(answer["data"]["answer"], "in the end");
    assert_eq!(answer["data"]["budget_summary"]["calls"], 1);
}
