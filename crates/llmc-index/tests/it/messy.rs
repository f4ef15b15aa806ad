//! Questions in which few words matter.

use llmc_index::SearchScope;

use crate::work::{QUESTION_FILES, Work};

#[test]
fn the_title_of_an_issue_counts_more_than_its_template() {
    let work = Work::new(QUESTION_FILES);
    work.update();
    let issue = "Cookies are lost when a redirect is followed

<!-- Please describe the environment: version, platform, steps to reproduce -->
### Describe the bug
The jar is empty afterwards.

### Expected behavior
- [x] I have searched the issues

### Environment
Version: 1.2
Platform: any
2024-01-02 10:11:12 INFO render page version platform environment
";
    let found = work.found(issue, SearchScope::Repo);
    assert!(found[0].starts_with("src/session.rs"), "{found:?}");
    assert!(found[1].starts_with("src/session.rs"), "{found:?}");
}

#[test]
fn one_word_that_is_a_name_does_not_lead_astray() {
    let work = Work::new(QUESTION_FILES);
    work.update();
    let question = "render the nearest of 256 colors when the terminal has no more";
    let found = work.found(question, SearchScope::Repo);
    assert_eq!(found[0], "src/colors.rs#L1-L4", "{found:?}");
    assert_eq!(
        work.found("render", SearchScope::Repo)[0],
        "src/render.rs#L1-L3"
    );
}

/// One word of the question is the whole name of a small function that all others use, which has little else of it.
#[test]
fn a_name_counts_less_where_little_else_of_the_question_is() {
    let mut files = "//- src/image.py
def load(data):
    return self.configuration.read(data)
//- src/watcher.py
def refresh(self):
    if self.configuration and self.settings and self.edited:
        for line in self.reader:
            self.values[line.name] = line.value
        for other in self.others:
            other.notify(self.values)
"
    .to_owned();
    for n in 0..10 {
        files += &format!("//- src/part{n}.py\ndef part_{n}(data):\n    return load(data).size\n");
    }
    let work = Work::new(&files);
    work.update();
    let question =
        "why does the server load stale settings after the configuration was edited on disk";
    let found = work.found(question, SearchScope::Repo);
    assert!(found[0].starts_with("src/watcher.py"), "{found:?}");
    assert!(work.found("load", SearchScope::Repo)[0].starts_with("src/image.py"));
}

#[test]
fn a_file_that_the_question_names_comes_first() {
    let work = Work::new(
        "//- lib/a/store.py\ndef save(path):\n    return write(path)\n//- lib/b/store.py\ndef save(path):\n    return write(path, sync=True)\n",
    );
    work.update();
    for (question, first) in [
        (
            "save a path, see /home/me/project/lib/b/store.py",
            "lib/b/store.py#L1-L2",
        ),
        (
            "save a path, see C:\\work\\lib\\a\\store.py",
            "lib/a/store.py#L1-L2",
        ),
    ] {
        assert_eq!(
            work.found(question, SearchScope::Repo)[0],
            first,
            "{question}"
        );
    }
}

const CONTEXT: &str = "//- app/globals.py
_no_app_msg = \"\"\"\\
Working outside of application context.

This typically means that you attempted to use functionality that needed
the current application.
\"\"\"

def find_app():
    return _app_stack.top
//- app/errors.py
class RuntimeError(Exception):
    pass

def raise_runtime_error(error):
    raise RuntimeError(error)
//- app/cli.py
def error(message):
    click.echo(message, err=True)

def run_application(context):
    context.application.run(outside=True, working=context.directory)
//- tests/test_context.py
def test_context_is_pushed():
    with app.app_context():
        assert find_app() is app
//- app/context.py
def push_context(app):
    _app_stack.push(app)

def context_is_pushed(app):
    return app in _app_stack
";

#[test]
fn an_error_line_finds_with_its_prefix_what_it_finds_without() {
    let work = Work::new(CONTEXT);
    work.update();
    let message = "Working outside of application context.";
    let expected = work.found(message, SearchScope::Repo);
    assert!(expected[0].starts_with("app/globals.py"), "{expected:?}");
    for prefix in [
        "RuntimeError: ",
        "E   RuntimeError: ",
        "builtins.RuntimeError: ",
        "error: ",
        "ERROR: ",
        "[2024-01-02 10:11:12,123] ERROR in app: RuntimeError: ",
        "Traceback (most recent call last):\nRuntimeError: ",
        "thread 'main' panicked at src/main.rs:4:5:\n",
    ] {
        let found = work.found(&format!("{prefix}{message}"), SearchScope::Repo);
        assert_eq!(found[0], expected[0], "{prefix:?}: {found:?}");
    }
}

#[test]
fn quoted_code_leads_to_where_it_stands() {
    let work = Work::new(QUESTION_FILES);
    work.update();
    let question = "Why does this not render the page in the version of my platform?\n\n```rust\n\
        for cookie in response.headers(\"set-cookie\") {\n    jar.store(cookie);\n}\n```\n";
    let found = work.found(question, SearchScope::Repo);
    assert_eq!(found[0], "src/session.rs#L1-L5", "{found:?}");
}

#[test]
fn the_name_of_a_test_leads_to_the_test() {
    let work = Work::new(CONTEXT);
    work.update();
    for question in [
        "FAILED tests/test_context.py::test_context_is_pushed - AssertionError",
        "test_context_is_pushed fails",
        "--- FAIL: test_context_is_pushed (0.00s)",
    ] {
        let found = work.found(question, SearchScope::Repo);
        assert_eq!(
            found[0], "tests/test_context.py#L1-L3",
            "{question}: {found:?}"
        );
    }
    let found = work.found("whether the context is pushed", SearchScope::Repo);
    assert!(found[0].starts_with("app/context.py"), "{found:?}");
}

#[test]
fn pictures_say_what_their_alternative_text_says() {
    let work = Work::new(QUESTION_FILES);
    work.update();
    for picture in [
        "![nearest terminal colors](https://example.org/render/page/environment.png)",
        "<img alt=\"nearest terminal colors\" src=\"https://example.org/render/page.png\">",
        "![nearest terminal colors](data:image/png;base64,render/page/quicksort)",
    ] {
        let found = work.found(
            &format!("It looks like this:\n{picture}\n"),
            SearchScope::Repo,
        );
        assert_eq!(found[0], "src/colors.rs#L1-L4", "{picture}: {found:?}");
    }
}

#[test]
fn the_innermost_frame_of_the_workspace_comes_first() {
    let work = Work::new(CONTEXT);
    work.update();
    let issue = "The command line fails\n\nTraceback (most recent call last):\n  \
        File \"/srv/www/app/cli.py\", line 5, in run_application\n    context.application.run()\n  \
        File \"/srv/www/app/context.py\", line 2, in push_context\n    _app_stack.push(app)\n  \
        File \"/usr/lib/python3/site-packages/werkzeug/local.py\", line 40, in push\n    rv = []\n\
        TypeError: unhashable type\n";
    let found = work.found(issue, SearchScope::Repo);
    assert_eq!(found[0], "app/context.py#L1-L2", "{found:?}");
    assert_eq!(found[1], "app/cli.py#L4-L5", "{found:?}");
}
