//! The resources the suite reads.

use rmcp::{
    ErrorData,
    model::{
        ListResourceTemplatesResult, ListResourcesResult, ReadResourceResponse, ReadResourceResult,
    },
};
use serde_json::{Value, json};

use crate::{handler::typed, tools::PNG};

pub(crate) fn list() -> Result<ListResourcesResult, ErrorData> {
    let resources = json!([
        {"uri": "test://static-text", "name": "text", "description": "Fixture", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "binary", "description": "Fixture", "mimeType": "image/png"},
        {"uri": "test://watched-resource", "name": "watched", "description": "Fixture", "mimeType": "text/plain"},
    ]);
    Ok(ListResourcesResult::with_all_items(typed(resources)?))
}

pub(crate) fn list_templates() -> Result<ListResourceTemplatesResult, ErrorData> {
    let templates = json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Fixture",
        "mimeType": "application/json",
    }]);
    Ok(ListResourceTemplatesResult::with_all_items(typed(
        templates,
    )?))
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let templated = uri
        .strip_prefix("test://template/")
        .and_then(|rest| rest.strip_suffix("/data"));
    let content: Value = match (uri, templated) {
        ("test://static-text", _) => json!({
            "uri": uri,
            "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }),
        ("test://static-binary", _) => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
        ("test://watched-resource", _) => {
            json!({"uri": uri, "mimeType": "text/plain", "text": "watched"})
        }
        (_, Some(id)) => json!({
            "uri": uri,
            "mimeType": "application/json",
            "text": json!({
                "id": id,
                "templateTest": true,
                "data": format!("Data for ID: {id}"),
            }).to_string(),
        }),
        _ => {
            return Err(ErrorData::resource_not_found(
                "Resource not found",
                Some(json!({"uri": uri})),
            ));
        }
    };
    Ok(ReadResourceResult::new(typed(json!([content]))?).into())
}
