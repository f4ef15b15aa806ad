//! What lasts from one block to the next, and what does not.

use llmc_sandbox::{
    Sandbox, SandboxOptions, ScriptEnd, ScriptErrorKind, ScriptLimit, ScriptOutcome, Session,
    SessionBudget, SessionSetup,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Toys, limits, runtime, setup, trouble};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("sessions::names_last_and_functions_too", lasting);
    add("sessions::a_dump_goes_on_elsewhere", dumps);
    add(
        "sessions::a_killed_block_rolls_back_to_the_checkpoint",
        checkpoints,
    );
    add(
        "sessions::nothing_passes_from_one_session_to_another",
        separate,
    );
    add("sessions::budgets_bind_all_blocks_together", budgets);
    add("sessions::a_dead_worker_in_the_pool_is_replaced", dead);
}

async fn block(session: &mut Session, code: &str) -> ScriptOutcome {
    let (toys, cancel) = (Toys::default(), CancellationToken::new());
    session.run(code, &limits(), &toys, &cancel).await
}

async fn shown(session: &mut Session, code: &str) -> String {
    let outcome = block(session, code).await;
    match outcome.ending {
        ScriptEnd::Value(value) => outcome.output + &value.repr,
        other => panic!("{code}: {other:?}"),
    }
}

fn lasting() {
    runtime().block_on(async {
        let mut session = Sandbox::default().session("me", setup()).await.unwrap();
        block(
            &mut session,
            "x = 2\ndef double(n):\n  return n * 2\nfrom tools import add",
        )
        .await;
        assert_eq!(shown(&mut session, "x = double(x)\nadd(x, 1)").await, "5");
        // A failing block keeps what it had done.
        let outcome = block(&mut session, "x = 'kept'\n1 / 0").await;
        assert_eq!(trouble(&outcome).exception, "ZeroDivisionError");
        assert_eq!(shown(&mut session, "x").await, "kept");
        // Lines are those of the block, and earlier ones are named as such.
        block(&mut session, "\n\ndef boom():\n  raise ValueError('deep')").await;
        let outcome = block(&mut session, "boom()").await;
        let trouble = trouble(&outcome);
        assert_eq!(trouble.line, Some(1), "{trouble:?}");
        assert!(
            trouble
                .traceback
                .contains("line 4, in boom (of an earlier block)"),
            "{trouble:?}"
        );
    });
}

fn dumps() {
    runtime().block_on(async {
        let sandbox = Sandbox::default();
        let mut session = sandbox.session("me", setup()).await.unwrap();
        block(
            &mut session,
            "x = {'a': [1, 2]}\nf = lambda n: n + 1\nt = tools",
        )
        .await;
        let state = session.dump(1 << 20).await.unwrap();
        assert_eq!(
            shown(&mut session, "x['a']").await,
            "[1, 2]",
            "goes on after a dump"
        );
        let again = SessionSetup {
            state: Some(state.clone()),
            ..setup()
        };
        let mut other = sandbox.session("me", again).await.unwrap();
        assert_eq!(shown(&mut other, "f(x['a'][1]) + t.add(1)").await, "4");
        // Too large, damaged, cut off.
        block(&mut session, "y = 'x' * 5000").await;
        let error = session.dump(1000).await.unwrap_err().to_string();
        assert!(error.contains("more than the 1000"), "{error}");
        assert_eq!(shown(&mut session, "len(y)").await, "5000");
        for state in [
            b"nonsense".to_vec(),
            state[..state.len() - 9].to_vec(),
            vec![0; 64],
        ] {
            let bad = SessionSetup {
                state: Some(state),
                ..setup()
            };
            let error = sandbox.session("me", bad).await.unwrap_err();
            assert!(matches!(error, llmc_sandbox::Error::BadState(_)), "{error}");
        }
    });
}

fn checkpoints() {
    runtime().block_on(async {
        let with = SessionSetup {
            checkpoints: true,
            ..setup()
        };
        let mut session = Sandbox::default().session("me", with).await.unwrap();
        block(&mut session, "x = 1").await;
        let outcome = block(&mut session, "x = 2\ny = 'a' * 10**10").await;
        assert_eq!(
            trouble(&outcome).kind,
            ScriptErrorKind::Limit(ScriptLimit::Memory)
        );
        assert!(outcome.rolled_back);
        assert_eq!(shown(&mut session, "x").await, "1");
        let mut session = Sandbox::default().session("me", setup()).await.unwrap();
        block(&mut session, "x = 1").await;
        let outcome = block(&mut session, "y = 'a' * 10**10").await;
        assert!(outcome.rolled_back);
        assert_eq!(
            trouble(&block(&mut session, "x").await).exception,
            "NameError"
        );
    });
}

fn separate() {
    runtime().block_on(async {
        let sandbox = Sandbox::new(SandboxOptions {
            sessions: 4,
            ..SandboxOptions::default()
        });
        for owner in ["me", "you", "me", "me"] {
            let mut session = sandbox.session(owner, setup()).await.unwrap();
            let outcome = block(&mut session, "leak").await;
            assert_eq!(trouble(&outcome).exception, "NameError", "{owner}");
            block(&mut session, "leak = 1\ntools.leak = 2").await;
        }
    });
}

fn budgets() {
    runtime().block_on(async {
        let budget = SessionBudget {
            calls: Some(3),
            output_bytes: Some(10),
            ..SessionBudget::default()
        };
        let with = SessionSetup { budget, ..setup() };
        let mut session = Sandbox::default().session("me", with).await.unwrap();
        assert_eq!(shown(&mut session, "add(1) + add(1)").await, "2");
        let outcome = block(&mut session, "add(1) + add(1)").await;
        assert_eq!(
            trouble(&outcome).kind,
            ScriptErrorKind::Limit(ScriptLimit::Calls)
        );
        assert_eq!(shown(&mut session, "print('12345678')").await, "12345678\n");
        let outcome = block(&mut session, "print('12345678')").await;
        assert_eq!(
            trouble(&outcome).kind,
            ScriptErrorKind::Limit(ScriptLimit::Output)
        );
        assert_eq!(outcome.output, "1");
    });
}

fn dead() {
    runtime().block_on(async {
        let sandbox = Sandbox::default();
        for round in 0..3 {
            let mut session = sandbox.session("me", setup()).await.unwrap();
            assert_eq!(shown(&mut session, "1").await, "1", "{round}");
            let pid = session.worker_id().unwrap();
            // Back to the pool, where it is killed.
            drop(session);
            let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    });
}
