//! What a server offers beside tools: resources and prompts.
//!
//! Their lists are data that scripts ask for, not text that a model is shown, so nothing of them is recorded or accepted.
//! Of each entry only what says how to use it is kept: icons and metadata can be large.

use serde_json::{Map, Value, json};

use crate::answer::UpstreamAnswer;
use crate::connection::{CallTerms, Connection, MAX_LIST_PAGES};
use crate::error::{Error, Result};

/// Entries of a list; what a server lists beyond that is left out.
const MAX_ENTRIES: usize = 5_000;
/// Bytes of a list.
const MAX_LIST_BYTES: usize = 4 << 20;

/// Fields of resources, of templates and of prompts that are kept.
const RESOURCE_FIELDS: [&str; 6] = ["uri", "name", "title", "description", "mimeType", "size"];
const TEMPLATE_FIELDS: [&str; 5] = ["uriTemplate", "name", "title", "description", "mimeType"];
const PROMPT_FIELDS: [&str; 4] = ["name", "title", "description", "arguments"];

impl Connection {
    /// The resources, then the templates for their addresses.
    pub(crate) async fn resources(&self, terms: &CallTerms<'_>) -> Result<UpstreamAnswer> {
        let mut entries = Entries::default();
        self.list(
            "resources/list",
            "resources",
            &RESOURCE_FIELDS,
            terms,
            &mut entries,
        )
        .await?;
        let method = "resources/templates/list";
        let templates = self.list(
            method,
            "resourceTemplates",
            &TEMPLATE_FIELDS,
            terms,
            &mut entries,
        );
        match templates.await {
            // Many servers have none, and do not know the method.
            Ok(()) | Err(Error::Refused { .. }) => Ok(entries.answer()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn read_resource(
        &self,
        uri: &str,
        terms: &CallTerms<'_>,
    ) -> Result<UpstreamAnswer> {
        let params = json!({"uri": uri});
        let read = self
            .call("resources/read", params, Vec::new(), terms)
            .await?;
        UpstreamAnswer::of_contents(read)
    }

    pub(crate) async fn prompts(&self, terms: &CallTerms<'_>) -> Result<UpstreamAnswer> {
        let mut entries = Entries::default();
        self.list(
            "prompts/list",
            "prompts",
            &PROMPT_FIELDS,
            terms,
            &mut entries,
        )
        .await?;
        Ok(entries.answer())
    }

    /// A prompt filled in; the protocol has texts for arguments.
    pub(crate) async fn prompt(
        &self,
        name: &str,
        args: &Map<String, Value>,
        terms: &CallTerms<'_>,
    ) -> Result<UpstreamAnswer> {
        let texts = args.iter().map(|(key, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            (key.clone(), Value::from(text))
        });
        let texts: Map<String, Value> = texts.collect();
        let params = json!({"name": name, "arguments": texts});
        let prompt = self.call("prompts/get", params, Vec::new(), terms).await?;
        UpstreamAnswer::of_prompt(prompt)
    }

    async fn list(
        &self,
        method: &str,
        key: &str,
        fields: &[&str],
        terms: &CallTerms<'_>,
        entries: &mut Entries,
    ) -> Result<()> {
        let mut params = json!({});
        for _ in 0..MAX_LIST_PAGES {
            let mut page = self.call(method, params, Vec::new(), terms).await?;
            let Some(Value::Array(listed)) = page.get_mut(key).map(Value::take) else {
                return Err(Error::Protocol(format!("a list without {key}")));
            };
            if !listed.into_iter().all(|entry| entries.add(entry, fields)) {
                break;
            }
            match page["nextCursor"].as_str() {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        Ok(())
    }
}

/// Entries of a list while it is read.
#[derive(Default)]
struct Entries {
    kept: Vec<Value>,
    bytes: usize,
    is_cut: bool,
}

impl Entries {
    /// Takes an entry; whether there is room for more.
    fn add(&mut self, entry: Value, fields: &[&str]) -> bool {
        let Value::Object(entry) = entry else {
            return true;
        };
        let kept = entry
            .into_iter()
            .filter(|(key, value)| fields.contains(&key.as_str()) && !value.is_null());
        let kept = Value::Object(kept.collect());
        self.bytes = self.bytes.saturating_add(kept.to_string().len());
        self.is_cut = self.kept.len() == MAX_ENTRIES || self.bytes > MAX_LIST_BYTES;
        if !self.is_cut {
            self.kept.push(kept);
        }
        !self.is_cut
    }

    fn answer(self) -> UpstreamAnswer {
        let mut answer = UpstreamAnswer::of_data(self.kept.into());
        if self.is_cut {
            answer
                .notes
                .push("the server lists more, which is left out".to_owned());
        }
        answer
    }
}
