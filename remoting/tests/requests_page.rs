//! The page of all request codes is what the table says.

use std::{fmt::Write as _, path::Path};

use staticfire_remoting::{BodyKind, RequestCode, RequestRow, Role, Version};

/// Writes the page anew instead of comparing it, if set.
const WRITE: &str = "STATICFIRE_WRITE_PAGES";

fn roles(roles: &[Role]) -> String {
    roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect::<Vec<_>>().join(", ")
}

fn side(fields: &[staticfire_remoting::FieldRow], body: BodyKind) -> String {
    let mut parts: Vec<String> =
        fields.iter().map(|field| format!("`{}`{}", field.name, if field.required { "" } else { "?" })).collect();
    match body {
        BodyKind::Empty => {}
        BodyKind::Json(name) => parts.push(format!("body {name}")),
        other => parts.push(format!("body: {}", format!("{other:?}").to_lowercase())),
    }
    if parts.is_empty() { "–".to_owned() } else { parts.join(", ") }
}

fn since(row: &RequestRow) -> String {
    match row.since.name() {
        Some(_) if row.since == Version::V4_9_8 => "4.x".to_owned(),
        Some(name) => name.trim_start_matches('V').replace('_', "."),
        None => row.since.0.to_string(),
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Request codes\n\n\
         Written from the table in `remoting/src/request.rs`; do not edit. A `?` marks what may be absent.\n\n\
         | Code | Name | From → to | Request | Response | Since |\n|---|---|---|---|---|---|\n",
    );
    let mut rows: Vec<&RequestRow> = RequestCode::TABLE.iter().collect();
    rows.sort_by_key(|row| row.code.number());
    for row in rows {
        writeln!(
            page,
            "| {} | {} | {} → {} | {} | {} | {} |",
            row.code.number(),
            row.name,
            roles(row.from),
            roles(row.to),
            side(row.fields, row.body),
            side(row.response_fields, row.response_body),
            since(row),
        )
        .unwrap();
    }
    page
}

#[test]
fn the_page_of_request_codes_follows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/requests.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/requests.md is out of date: run this test once with {WRITE}=1");
}
