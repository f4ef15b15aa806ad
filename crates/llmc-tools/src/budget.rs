//! What an answer may cost: the agent's budget for one answer, and what is left of the session's.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::cx::{Caller, Cx, Surface};

/// What a script's call is given: a script asked for data, and what its reader gets is what it prints.
const SCRIPT_CALL_TOKENS: u64 = 1_000_000;
/// What a further call for the rest of an answer costs: its words, its answer's frame and the thought before it.
const CALL_COST_TOKENS: usize = 800;
/// The most tokens that a call can ask for by `max_tokens`.
const MAX_ASKED_TOKENS: u64 = 20_000;
/// What an answer says that the session's budget has cut.
pub(crate) const SESSION_SPENT: &str =
    "cut: the session's token budget (mcp.te.session_budget_tokens) is spent";
/// Sessions whose budgets are tracked at the same time.
const MAX_TRACKED_SESSIONS: usize = 4096;

/// Tokens that each session has been served.
#[derive(Debug, Default)]
pub(crate) struct SessionBudgets {
    /// By principal and session: another principal's session of the same name is another session.
    served: Mutex<BTreeMap<(String, String), u64>>,
}

impl SessionBudgets {
    fn served_to(&self, caller: &Caller) -> u64 {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.get(&key(caller)).copied().unwrap_or(0)
    }

    fn count(&self, caller: &Caller, tokens: u64) {
        let key = key(caller);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.len() >= MAX_TRACKED_SESSIONS && !served.contains_key(&key) {
            served.pop_first();
        }
        *served.entry(key).or_default() += tokens;
    }
}

fn key(caller: &Caller) -> (String, String) {
    (caller.principal.clone(), caller.session.clone())
}

/// Tokens that one answer to this agent may take, whatever its session has left.
pub(crate) fn answer_budget(cx: &Cx) -> u64 {
    if cx.caller().surface == Surface::Code {
        return SCRIPT_CALL_TOKENS;
    }
    cx.app().config().mcp.te.budget_for(&cx.caller().agent)
}

/// Tokens up to which an answer with this budget is given whole: what exceeds it by less than a further call costs is not
/// worth that call.
pub(crate) fn whole_answer_budget(cx: &Cx, budget: usize) -> usize {
    let left = session_room(cx);
    let slack = CALL_COST_TOKENS.min(budget / 4);
    budget.saturating_add(slack).min(left.max(budget))
}

/// What is left of the session's budget, if it has one.
pub(crate) fn session_budget_left(cx: &Cx) -> Option<u64> {
    let te = &cx.app().config().mcp.te;
    let all = te.session_budget_for(&cx.caller().agent)?;
    Some(all.saturating_sub(cx.app().sessions().served_to(cx.caller())))
}

/// Tokens that an answer may take whose length its caller has chosen: what the session has left.
pub(crate) fn session_room(cx: &Cx) -> usize {
    if cx.caller().surface == Surface::Code {
        return usize::MAX;
    }
    let left = session_budget_left(cx).unwrap_or(u64::MAX);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// What the session has left after an answer that names that number itself.
pub(crate) fn naming_what_is_left(
    left: Option<u64>,
    answer: impl Fn(Option<u64>) -> String,
    cost: impl Fn(&str) -> u64,
) -> String {
    let mut text = answer(left);
    let Some(before) = left else { return text };
    // The number's own digits cost tokens; a second or third try agrees with itself.
    let mut named = before;
    for _ in 0..3 {
        let after = before.saturating_sub(cost(&text));
        if after == named {
            break;
        }
        named = after;
        text = answer(Some(named));
    }
    text
}

/// Tokens that the next answer may take. A spent session still gets its header and its handle: answers shrink, they never
/// fail.
pub(crate) fn next_answer_budget(cx: &Cx) -> u64 {
    if cx.caller().surface == Surface::Code {
        return answer_budget(cx);
    }
    let answer = match cx.asked_tokens() {
        Some(asked) => asked.clamp(1, MAX_ASKED_TOKENS),
        None => answer_budget(cx),
    };
    session_budget_left(cx).map_or(answer, |left| answer.min(left))
}

/// What an image takes of a model's context, by the rule of the model providers: one token for 750 pixels.
pub(crate) fn image_tokens(width: u32, height: u32) -> usize {
    let pixels = u64::from(width) * u64::from(height);
    usize::try_from(pixels.div_ceil(750)).unwrap_or(usize::MAX)
}

/// Counts an image against the session's budget.
pub(crate) fn count_image(cx: &Cx, width: u32, height: u32) {
    if cx.caller().surface != Surface::Code && session_budget_left(cx).is_some() {
        let tokens = image_tokens(width, height) as u64;
        cx.app().sessions().count(cx.caller(), tokens);
    }
}

/// Counts what a caller is served against its session's budget. A script's calls do not count: what reaches the model is
/// what the script prints.
pub(crate) fn count_served(cx: &Cx, text: &str) {
    if cx.caller().surface != Surface::Code && session_budget_left(cx).is_some() {
        let tokens = llmc_tokens::count(text) as u64;
        cx.app().sessions().count(cx.caller(), tokens);
    }
}
