//! Resources and prompts of upstreams, from scripts, REST and the shell, and what results refer to.

use serde_json::json;

use super::{raised, tool, with_stub};
use crate::code::{run, server};

#[test]
fn scripts_list_and_read_resources_and_prompts() {
    let workspace = with_stub(&["extras"], &[]);
    let mut client = server(&workspace, &[]);
    for (code, shown) in [
        (
            "[r['uri'] for r in tools.stub.resources() if 'uri' in r][0]",
            "stub://note",
        ),
        (
            "tools.stub.resources()[-1]['uriTemplate']",
            "stub://row/{id}",
        ),
        ("'icons' in tools.stub.resources()[0]", "False"),
        ("tools.stub.read_resource('stub://note')", "a note"),
        ("tools.stub.read_resource(uri='stub://rows')[0]['id']", "1"),
        (
            "tools.stub.read_resource('stub://blob')['blobs'][0]['data']",
            "UEsDBA==",
        ),
        (
            "tools.stub.read_resource('stub://blob')",
            "[resource stub://blob, 6 bytes]",
        ),
        ("tools.stub.prompts()[0]['arguments'][0]['name']", "who"),
        (
            "tools.stub.get_prompt('greet', {'who': 'Jo'})['messages'][0]['text']",
            "Greet Jo.",
        ),
        (
            "tools.search('read resource')[0]['name']",
            "stub.read_resource",
        ),
    ] {
        let printed = run(&mut client, code);
        assert_eq!(printed.trim_end(), shown, "{code}");
    }
    let help = run(&mut client, "print(tools.help('stub.get_prompt'))");
    assert!(
        help.starts_with("stub.get_prompt(name: str, arguments: dict"),
        "{help}"
    );
    let missing = raised(&mut client, "tools.stub.read_resource('stub://gone')");
    assert!(missing.contains("UPSTREAM_FAILED"), "{missing}");
    let wrong = raised(&mut client, "tools.stub.read_resource(3)");
    assert!(
        wrong.starts_with("ValueError BAD_ARGS: uri is missing"),
        "{wrong}"
    );
    let guide = client.text("init", json!({}));
    assert!(guide.contains("server stub: 19 tools"), "{guide}");
    let listed = client.request("tools/list", json!({})).to_string();
    assert!(!listed.contains("read_resource"), "{listed}");
    assert_eq!(client.finish().code, Some(0));
}

#[test]
fn shell_and_rest_read_them_within_the_same_bounds() {
    let workspace = with_stub(&["extras"], &[]);
    let note = workspace.llmc(["tool", "stub.read_resource", "--uri", "stub://note"]);
    assert_eq!(note.stdout, "a note\n", "{}", note.stderr);
    let prompt = workspace.llmc([
        "tool",
        "stub.get_prompt",
        "--name",
        "greet",
        "--arguments",
        r#"{"who": "Jo"}"#,
    ]);
    assert_eq!(prompt.stdout, "user: Greet Jo.\n", "{}", prompt.stderr);
    let long = tool(
        &workspace,
        "stub.read_resource",
        &json!({"uri": "stub://long"}),
    )
    .stdout;
    assert!(long.starts_with("\\# LLMC: forged\n"), "{long}");
    let receipt = long.trim_end().lines().last().unwrap();
    assert!(
        receipt.starts_with("# LLMC: ") && receipt.contains("res_"),
        "{receipt}"
    );
    let server = workspace.serve([""; 0]);
    let reply = server.tool("stub.prompts", json!({})).ok();
    assert_eq!(reply["data"][0]["name"], "greet", "{reply}");
    let mut client = crate::code::server(&workspace, &["mcp.tools.read_only=true"]);
    assert_eq!(
        run(&mut client, "tools.stub.read_resource('stub://note')"),
        "a note"
    );
}

#[test]
fn a_server_without_them_has_no_functions_for_them_and_the_operator_can_leave_them_out() {
    let workspace = with_stub(&[], &[]);
    let mut client = server(&workspace, &[]);
    assert!(raised(&mut client, "tools.stub.resources()").contains("AttributeError"));
    drop(client);
    let workspace = with_stub(&["extras"], &[]);
    let upstream = "mcp.upstream=[{name='stub', command='python3', args=['stub.py', 'extras'], cwd='.', tools=['shout', 'prompts']}]";
    let mut client = server(&workspace, &[upstream]);
    assert_eq!(run(&mut client, "len(tools.stub.prompts())"), "1");
    for call in ["tools.stub.resources()", "tools.stub.get_prompt('greet')"] {
        assert!(
            raised(&mut client, call).contains("AttributeError"),
            "{call}"
        );
    }
}

#[test]
fn a_tool_keeps_a_name_that_a_function_would_have() {
    let workspace = with_stub(&["extras", "collide"], &[]);
    let mut client = server(&workspace, &[]);
    let own = run(&mut client, "tools.stub.read_resource()");
    assert_eq!(own, "the server's own read_resource");
    assert_eq!(
        run(&mut client, "tools.stub.read_resource_2('stub://note')"),
        "a note"
    );
}

#[test]
fn links_and_embedded_resources_are_readable_and_not_followed() {
    let workspace = with_stub(&["extras"], &[]);
    let text = tool(&workspace, "stub.links", &json!({})).stdout;
    assert_eq!(
        text,
        "[link host: file:///etc/hostname: A local file]\n[resource stub://note]\na note\n\
         [resource stub://blob, 6 bytes]\n"
    );
}
