//! What no compiler checks: which crate may depend on which, how long things may get, which words are not used and
//! what to write instead, and that nothing is left out of a list it belongs to.
//!
//! This is the one test that reads source text. It relies on `rustfmt`: a block ends at the first `}` that stands as
//! far left as the line which opened it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every crate with the crates it may use, the lines of code it may have without tests, and what they are for.
///
/// Raising a budget is a commit of its own that says why.
const CRATES: [(&str, usize, &[&str]); 9] = [
    ("host", 4_000, &[]),
    ("message", 2_000, &[]),
    ("remoting", 9_000, &["host", "message"]),
    ("store", 9_000, &["host", "message"]),
    ("namesrv", 2_000, &["host", "message", "remoting"]),
    ("broker", 16_000, &["host", "message", "remoting", "store"]),
    ("client", 11_000, &["host", "message", "remoting"]),
    ("sim", 18_500, &["host", "message", "remoting", "store", "namesrv", "broker", "client"]),
    ("", 5_000, &["host", "message", "remoting", "store", "namesrv", "broker", "client", "sim"]),
];

/// Dependencies from outside that only the named crates may have. The binary has madsim for a bench only.
const RESERVED: [(&str, &[&str]); 4] =
    [("madsim", &["sim", ""]), ("rand_chacha", &["sim"]), ("memmap2", &["host"]), ("rustix", &["host"])];

/// The most lines of a file without its tests.
const FILE_LINES_MAX: usize = 800;

/// The most lines of a function, signature and braces included.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that are longer for a reason. The number is a ratchet: it may go down, never up.
const LONG_FUNCTIONS: [(&str, &str, usize); 0] = [];

/// Words that product code does not use: the word, the crates that may use it, and what to write instead.
const BANNED: [(&str, &[&str], &str); 20] = [
    ("tokio::select!", &["host"], "host::select!, which always tries its branches from top to bottom"),
    ("tokio::spawn", &["host"], "Host::spawn"),
    ("tokio::time", &["host"], "the clock of host::Host"),
    ("tokio::net", &["host"], "host::net"),
    ("tokio::fs", &["host"], "host::fs"),
    ("std::thread", &["host", "sim", ""], "Host::spawn"),
    ("std::net::Tcp", &["host", "sim", ""], "host::net"),
    ("std::process", &["host", "sim", ""], "Host::process_id; only the command line may end the process"),
    ("std::env", &["host", "sim", ""], "a key of the configuration: only the command line reads the environment"),
    ("HashMap", &["host", "sim"], "IndexMap or BTreeMap: the order of a hash map differs from run to run"),
    ("HashSet", &["host", "sim"], "IndexSet or BTreeSet: the order of a hash set differs from run to run"),
    ("cfg(madsim)", &["sim", ""], "nothing: a role cannot tell which machine it runs on"),
    ("feature = \"sim\"", &["sim", ""], "nothing: a role cannot tell which machine it runs on"),
    ("madsim::", &["sim"], "host: nothing below sim knows of the simulator"),
    ("todo!(", &[], "the code"),
    ("unimplemented!(", &[], "the code, or an error that names what is missing"),
    ("FIXME", &[], "a fix, or an issue"),
    ("dbg!(", &[], "a tracing event"),
    ("println!(", &[""], "a tracing event: only the command line prints"),
    ("#[ignore", &[], "a test of today's wrong answer that says why it is wrong"),
];

/// File names that say nothing about what is inside.
const DRAWERS: [&str; 8] =
    ["utils.rs", "util.rs", "common.rs", "helpers.rs", "types.rs", "misc.rs", "v2.rs", "prelude.rs"];

/// Beginnings of paths that exist on one machine only. Written in halves, so that this file passes its own test.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

#[test]
fn crates_depend_only_downwards() {
    let mut wrong = String::new();
    for (name, _, allowed) in CRATES {
        for dependency in dependencies(name) {
            if is_ours(&dependency) && !allowed.contains(&dependency.as_str()) {
                writeln!(wrong, "{}: may not depend on `{dependency}`", manifest(name).display()).unwrap();
            }
            for (reserved, owners) in RESERVED {
                if dependency == reserved && !owners.contains(&name) {
                    writeln!(wrong, "{}: `{reserved}` belongs to {owners:?}", manifest(name).display()).unwrap();
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_simulator_is_an_optional_dependency_of_the_binary() {
    let root = parse_toml(&manifest(""));
    assert_eq!(root["dependencies"]["sim"]["optional"].as_bool(), Some(true), "servers must build without sim");
    assert!(root["workspace"].get("default-members").is_none(), "default-members would bring sim into server builds");
}

#[test]
fn every_crate_stays_within_its_line_budget() {
    let mut wrong = String::new();
    for (name, budget, _) in CRATES {
        let lines: usize = sources(name).iter().map(|source| source.lines_of_code()).sum();
        if lines > budget {
            writeln!(wrong, "{name}/src has {lines} lines of code without tests, its budget is {budget}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let mut wrong = String::new();
    for source in all_sources() {
        if source.product.len() > FILE_LINES_MAX {
            let lines = source.product.len();
            writeln!(wrong, "{}: {lines} lines without tests, at most {FILE_LINES_MAX}", source.path.display())
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_function_fits_on_a_screen() {
    let mut wrong = String::new();
    for source in all_sources() {
        for function in functions(&source.product) {
            let limit = LONG_FUNCTIONS
                .iter()
                .find(|(path, name, _)| source.path.ends_with(path) && function.name == *name)
                .map_or(FUNCTION_LINES_MAX, |(_, _, lines)| *lines);
            if function.lines > limit {
                let (path, Function { name, line, lines }) = (source.path.display(), &function);
                writeln!(wrong, "{path}:{line}: `{name}` has {lines} lines, at most {limit}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn banned_words_are_not_used() {
    let mut wrong = String::new();
    for (name, _, _) in CRATES {
        for source in sources(name) {
            for (number, line) in source.product.iter().enumerate() {
                for (word, allowed, instead) in BANNED {
                    if !allowed.contains(&name) && code_of(line).contains(word) {
                        let path = source.path.display();
                        writeln!(wrong, "{path}:{}: `{word}`: write {instead}", number + 1).unwrap();
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_note_for_later_names_its_issue() {
    let (note, numbered) = (concat!("TO", "DO"), concat!("TO", "DO(#"));
    let mut wrong = String::new();
    for path in text_files() {
        for (number, line) in read(&path).lines().enumerate() {
            if line.contains(note) && !line.contains(numbered) {
                writeln!(wrong, "{}:{}: {note} without the number of an issue", path.display(), number + 1).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn no_text_names_a_path_of_one_machine() {
    let mut wrong = String::new();
    for path in text_files() {
        for (number, line) in read(&path).lines().enumerate() {
            if let Some(prefix) = MACHINE_PATHS.iter().find(|prefix| names_path(line, prefix)) {
                writeln!(wrong, "{}:{}: a path below {prefix}", path.display(), number + 1).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn files_are_called_after_what_they_hold() {
    let mut wrong = String::new();
    for source in all_sources() {
        let name = source.path.file_name().unwrap().to_str().unwrap();
        if DRAWERS.contains(&name) || name == "mod.rs" {
            writeln!(wrong, "{}: call it after its main type", source.path.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_file_opens_with_its_idea() {
    let mut wrong = String::new();
    for source in all_sources() {
        if source.product.first().is_some_and(|line| !line.starts_with("//!")) {
            writeln!(wrong, "{}: the first line is not `//! …`", source.path.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_mark_has_a_name_of_its_own() {
    let (places, mut wrong) = marks();
    for (mark, places) in places.iter().filter(|(_, places)| places.len() > 1) {
        writeln!(wrong, "{mark} marks several places: {}", places.join(", ")).unwrap();
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_stand_knows_every_point() {
    let list = read(&root().join("sim/src/points.rs"));
    let listed = |name: &str| {
        let (_, rest) = list.split_once(&format!("const {name}: [&str;")).expect("the list exists");
        let (_, rest) = rest.split_once('=').and_then(|(_, rest)| rest.split_once('[')).expect("it is an array");
        let names = rest[..rest.find(']').expect("it ends")].split('"').skip(1).step_by(2);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let (places, _) = marks();
    for (list, kind) in [
        ("POINTS", "point!("),
        ("GATES", "gate!("),
        ("SOMETIMES", "sometimes!("),
        ("ALWAYS", "always!("),
        ("BUGGIFY", "buggify!("),
    ] {
        let marked: Vec<String> = places
            .keys()
            .filter_map(|mark| mark.strip_prefix(kind).map(|name| name.trim_end_matches(')').to_owned()))
            .collect();
        assert_eq!(listed(list), marked, "sim/src/points.rs, {list}: list every mark of the sources, sorted");
    }
}

/// Every mark of product code with its places, and what is wrong with some.
fn marks() -> (BTreeMap<String, Vec<String>>, String) {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut wrong = String::new();
    for source in all_sources().iter().filter(|source| !source.path.starts_with(root().join("sim"))) {
        let text = source.product.iter().map(|line| code_of(line)).collect::<Vec<_>>().join("\n");
        for kind in ["point!(", "gate!(", "sometimes!(", "always!(", "buggify!(", "mutant!("] {
            for (at, _) in text.match_indices(kind) {
                let place = format!("{}:{}", source.path.display(), 1 + text[..at].matches('\n').count());
                match text[at + kind.len()..].trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                    Some((name, _)) => places.entry(format!("{kind}{name})")).or_default().push(place),
                    // The macros' own definitions forward `$name` and come from host/src/lib.rs.
                    None if source.path.ends_with("host/src/lib.rs") => {}
                    None => writeln!(wrong, "{place}: the name of a mark is a string literal").unwrap(),
                }
            }
        }
    }
    (places, wrong)
}

#[test]
fn every_scenario_has_its_seeds_in_ci() {
    let listed = parse_toml(&root().join("scenarios/ci.toml"));
    let listed = listed["seeds"].as_table().expect("a table of file names");
    let mut wrong = String::new();
    for file in files_below(&root().join("scenarios")) {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let runs_elsewhere = ["ci.toml", "canary.toml", "mutants/", "bench/"].iter().any(|part| name.contains(part));
        if !runs_elsewhere && !listed.contains_key(&name) {
            writeln!(wrong, "scenarios/ci.toml: `{name}` is missing").unwrap();
        }
    }
    for (name, seeds) in listed {
        if !root().join(name).is_file() || seeds.as_integer().is_none_or(|seeds| seeds < 1) {
            writeln!(wrong, "scenarios/ci.toml: `{name}` is no scenario, or has no seeds").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_count_and_mark_has_a_word_in_the_docs() {
    let source = read(&root().join("sim/src/scenario.rs"));
    let docs = read(&root().join("docs/scenarios.md")) + &read(&root().join("docs/faults-in-scenarios.md"));
    let mut wrong = String::new();
    for list in ["pub const COUNTS: ", "pub const MARKS: "] {
        let (_, list) = source.split_once(list).expect("the lists stand in this file");
        let (list, _) = list.split_once("];").expect("a list ends");
        let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names.into_iter().filter(|name| !docs.contains(&format!("`{name}`"))) {
            writeln!(wrong, "docs/scenarios.md: `{name}` is missing").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_weakness_has_its_test_where_the_page_says() {
    assert_eq!(tests_of_page("docs/store.md", 'W', 2), (1..=28).collect::<Vec<_>>());
}

#[test]
fn every_report_has_its_test_where_the_page_says() {
    assert_eq!(tests_of_page("docs/reports.md", 'P', 3), (20..=37).collect::<Vec<_>>());
}

#[test]
fn every_crash_point_has_its_tests_where_the_page_says() {
    assert_eq!(rows_with_tests("docs/store.md", "## What a crash may leave").len(), 22);
}

#[test]
fn every_fault_has_a_scenario_and_tests_where_the_page_says() {
    let rows = rows_with_tests("docs/faults-in-scenarios.md", "## What shows that they do it");
    let mut kinds = Vec::new();
    for row in &rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let kind = cells[0].trim_matches(['|', ' ', '`']);
        let scenario = cells[1].rsplit_once("](../").map_or("", |(_, path)| path.trim_end_matches(')'));
        let uses = read(&root().join(scenario));
        let is_used = uses.lines().any(|line| line.split(['"', ' ', '=']).any(|word| word == kind));
        assert!(is_used, "`{scenario}` has no `{kind}`");
        kinds.push(kind);
    }
    let source = read(&root().join("sim/src/scenario/fault.rs"));
    let (_, list) = source.split_once("pub const NAMES: ").expect("the list of kinds");
    let (list, _) = list.split_once("];").expect("a list ends");
    assert_eq!(kinds, list.split('"').skip(1).step_by(2).collect::<Vec<_>>());
}

/// The rows of the table below a headline. The last cell names files, and tests that are in the file before them.
fn rows_with_tests(page: &str, headline: &str) -> Vec<String> {
    let text = read(&root().join(page));
    let (_, table) = text.split_once(headline).expect("the page has the table");
    let rows =
        table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<String> = rows.map(str::to_owned).collect();
    let mut wrong = String::new();
    for row in &rows {
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let mut source = String::new();
        for name in last.split('`').skip(1).step_by(2) {
            let is_there = match name.contains('/') {
                true => root().join(name).is_file(),
                false => source.contains(&format!("fn {name}(")),
            };
            if !is_there {
                writeln!(wrong, "{page}: no `{name}`: {row}").unwrap();
            } else if name.contains('/') {
                source = read(&root().join(name));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    rows
}

/// The numbers of the rows of a page that begin with a letter and so many digits. A row names a test after its number,
/// which must be there, or says what it needs that is not there.
fn tests_of_page(page: &str, letter: char, digits: usize) -> Vec<u32> {
    let (mut numbers, mut wrong) = (Vec::new(), String::new());
    for row in read(&root().join(page)).lines() {
        let number = row.strip_prefix("| ").and_then(|row| row.strip_prefix(letter)).and_then(|row| row.get(..digits));
        let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else { continue };
        numbers.push(number);
        let last = row.trim_end_matches([' ', '|']).rsplit("| ").next().unwrap_or_default();
        if last.starts_with("needs ") && last.ends_with("not there") {
            continue;
        }
        let name = format!("{}{number:0digits$}_", letter.to_ascii_lowercase());
        let path = last.strip_prefix('`').and_then(|cell| cell.split('`').next()).unwrap_or_default();
        let source = if root().join(path).is_file() { read(&root().join(path)) } else { String::new() };
        // A scenario has its name in a list of tests.
        let is_there = [format!("fn {name}"), format!("    {name}")].iter().any(|test| source.contains(test));
        if !last.ends_with(&format!("`{name}…`")) || !is_there {
            writeln!(wrong, "{page}: no test `{name}…` in `{path}`: {row}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    numbers
}

/// One Rust file: its path, and its lines up to the module of its unit tests.
struct Source {
    path: PathBuf,
    product: Vec<String>,
}

impl Source {
    fn open(path: PathBuf) -> Self {
        let product = without_tests(&read(&path));
        Source { path, product }
    }

    /// Lines that hold code: documentation is asked for, so it costs nothing.
    fn lines_of_code(&self) -> usize {
        self.product.iter().map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
    }
}

/// A function found in a source: where it begins and how many lines it has.
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// The functions of formatted code. A function ends at the first closing brace that is indented like its first line.
fn functions(lines: &[String]) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let closing = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let end = if line.ends_with('}') || line.ends_with(';') {
            start
        } else {
            (start..lines.len()).find(|&at| lines[at] == closing).unwrap_or(start)
        };
        found.push(Function { name, line: start + 1, lines: end - start + 1 });
    }
    found
}

/// The name of the function that this line declares, if it declares one.
fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern"].contains(word)
            || word.starts_with('"')
    });
    if words.next()? != "fn" {
        return None;
    }
    words.next()?.split(['(', '<']).next().map(str::to_owned)
}

/// The lines of a file without its modules of unit tests.
fn without_tests(text: &str) -> Vec<String> {
    let mut lines = text.lines().peekable();
    let mut product = Vec::new();
    while let Some(line) = lines.next() {
        let opens_tests = line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.trim_start().starts_with("mod ") && next.ends_with('{'));
        if opens_tests {
            let closing = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            for skipped in lines.by_ref() {
                if skipped == closing {
                    break;
                }
            }
        } else {
            product.push(line.to_owned());
        }
    }
    product
}

/// A line without its comment. A `//` inside a string cuts the line short, which hides nothing that matters here.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Whether `prefix` begins a path in this line, and is not merely the middle of a longer one.
fn names_path(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix).any(|(at, _)| {
        !line[..at]
            .ends_with(|before: char| before.is_alphanumeric() || ['.', '-', '_', '}', ')', '*'].contains(&before))
    })
}

fn is_ours(dependency: &str) -> bool {
    CRATES.iter().any(|(name, _, _)| !name.is_empty() && *name == dependency)
}

/// What a crate needs to be built: its dependencies for every target, those of its tests left out.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = parse_toml(&manifest(name));
    let mut tables = vec![&manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values());
    }
    tables
        .into_iter()
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|key| table.get(key)))
        .flatten()
        .filter_map(toml::Value::as_table)
        .flat_map(|table| table.keys().cloned())
        .collect()
}

fn manifest(name: &str) -> PathBuf {
    root().join(name).join("Cargo.toml")
}

fn parse_toml(path: &Path) -> toml::Value {
    read(path)
        .parse::<toml::Table>()
        .map(toml::Value::Table)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The sources of one crate, in order of their paths; files that hold nothing but tests are left out.
fn sources(name: &str) -> Vec<Source> {
    files_below(&root().join(name).join("src"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter(|path| !path.ends_with("tests.rs") && !path.components().any(|part| part.as_os_str() == "tests"))
        .map(Source::open)
        .collect()
}

fn all_sources() -> Vec<Source> {
    CRATES.iter().flat_map(|(name, _, _)| sources(name)).collect()
}

/// Every text that people write in this repository.
fn text_files() -> Vec<PathBuf> {
    const KINDS: [&str; 8] = ["rs", "toml", "md", "java", "xml", "sh", "yml", "conf"];
    files_below(&root())
        .into_iter()
        .filter(|path| match path.extension() {
            Some(extension) => KINDS.iter().any(|kind| extension == *kind),
            None => path.starts_with(root().join(".ci")),
        })
        .collect()
}

/// The files below `folder`, sorted, without what builds leave behind.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap_or_default();
            if path.is_dir() && !path.is_symlink() && !["target", ".git"].contains(&name) {
                open.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
