//! Reads a list of operators and their wiring.

use std::collections::HashMap;

use sluice_config::{Diagnostic, Fields, Span, nearest};

use super::ChainConfig;
use crate::expression::Expression;
use crate::operator::{Kind, Read, Route, Work};
use crate::operators::kinds;
use crate::read;

/// Operators of one chain.
const OPERATORS_LIMIT: usize = 256;
/// Copies that a chain may make of a record, through operators with several outputs.
const PATHS_LIMIT: usize = 1000;

/// The fate of a record that an operator fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnError {
    pub(super) sends: bool,
    /// The failure is counted, and not reported.
    pub(super) is_quiet: bool,
}

impl OnError {
    /// Reads the option `on_error`.
    pub fn read(fields: &mut Fields<'_>) -> OnError {
        let doc = "A record on which the operator fails goes on (`send`) or is dropped. It goes on \
                   unchanged, but if only `timestamp` or another section of a parser failed, with \
                   what was parsed. All failures are counted; `_quiet` does not log them.";
        fields.choice("on_error", ON_ERROR[0].1, &ON_ERROR, doc)
    }
}

impl Default for OnError {
    fn default() -> OnError {
        OnError { sends: true, is_quiet: false }
    }
}

const ON_ERROR: [(&str, OnError); 4] = [
    ("send", OnError { sends: true, is_quiet: false }),
    ("send_quiet", OnError { sends: true, is_quiet: true }),
    ("drop", OnError { sends: false, is_quiet: false }),
    ("drop_quiet", OnError { sends: false, is_quiet: true }),
];

/// An operator as configured.
#[derive(Clone)]
pub(super) struct OperatorConfig {
    pub id: String,
    pub condition: Option<Expression>,
    pub on_error: OnError,
    pub work: Work,
    /// For each way out of the operator, the operators to which it leads: beyond the last one is
    /// the end of the chain.
    pub ways: Vec<Vec<usize>>,
}

/// An operator of the file, before its outputs are known to exist.
struct Item {
    /// `None`: its type could not be read, or an option is wrong.
    made: Option<Made>,
    kind: &'static str,
    id: String,
    id_span: Option<Span>,
    routes: Vec<Route>,
}

struct Made {
    condition: Option<Expression>,
    on_error: OnError,
    work: Work,
}

/// Options that all kinds have; `is_plain`: the kind has one output.
struct Common {
    id: String,
    id_span: Option<Span>,
    route: Route,
    condition: Option<Expression>,
    on_error: OnError,
}

fn read_common(fields: &mut Fields<'_>, is_plain: bool) -> Common {
    let doc = "The name by which an `output` finds the operator. Default: its type; for \
               further operators of a type with a number, as in `json_parser1`.";
    let id = fields.string("id", "", doc);
    let id_span = fields.span_of("id");
    let (mut outputs, mut condition, mut on_error) = (Vec::new(), None, ON_ERROR[2].1);
    if is_plain {
        let doc = "The `id`s of the operators to which records go. Default: the next operator.";
        outputs = fields.string_list("output", &[], doc);
        let doc = "A condition. Records for which it does not hold pass the operator unchanged.";
        condition = read::condition(fields, "if", doc);
        on_error = OnError::read(fields);
    } else if !fields.is_describing() {
        refuse_for_routes(fields);
    }
    let route = Route { outputs, span: fields.span_of("output") };
    Common { id, id_span, route, condition, on_error }
}

/// Options that an operator with routes does not have.
fn refuse_for_routes(fields: &mut Fields<'_>) {
    for (key, hint) in [
        ("if", "write the condition into `expr` of each route"),
        ("output", "each route has an `output`, and `default` is for all other records"),
        ("on_error", "a route whose `expr` fails is passed over"),
    ] {
        if fields.node(key, "", "").is_some() {
            fields.error_at_with_hint(key, "is no option of an operator with routes", hint);
        }
    }
}

/// Declares the options of every operator, for the documentation.
pub(crate) fn describe_common(fields: &mut Fields<'_>, has_type: bool) {
    if has_type {
        let doc = "The kind of operator, such as `json_parser`: `docs/operators.md` lists all.";
        fields.required_string("type", doc);
    }
    read_common(fields, true);
}

pub(super) fn read(fields: &mut Fields<'_>, key: &str, doc: &str) -> ChainConfig {
    let mut items = fields.sections(key, doc, read_item);
    if items.len() > OPERATORS_LIMIT {
        fields.error_at(key, &format!("has more than {OPERATORS_LIMIT} operators"));
        return ChainConfig::default();
    }
    name(fields, key, &mut items);
    let Some(ways) = wire(fields, &items) else { return ChainConfig::default() };
    let Some(order) = order(fields, &items, &ways) else { return ChainConfig::default() };
    check_paths(fields, key, &items, &ways, &order);
    let operators = items.into_iter().zip(ways).filter_map(|(item, ways)| {
        let Made { condition, on_error, work } = item.made?;
        Some(OperatorConfig { id: item.id, condition, on_error, work, ways })
    });
    let operators: Vec<OperatorConfig> = operators.collect();
    // After an error in one of them, the caller uses none.
    if operators.len() < order.len() {
        return ChainConfig::default();
    }
    ChainConfig { operators, order }
}

fn read_item(fields: &mut Fields<'_>) -> Item {
    if fields.is_describing() {
        describe_common(fields, true);
        let (made, kind, id) = (None, "", String::new());
        return Item { made, kind, id, id_span: None, routes: Vec::new() };
    }
    let Some(kind) = read_kind(fields) else {
        // Without its kind, nothing is known of the operator; others may still lead to it.
        let id = fields.string("id", "", "");
        fields.accept_rest();
        return Item { made: None, kind: "", id, id_span: None, routes: Vec::new() };
    };
    let is_plain = !matches!(kind.read, Read::Router(_));
    let Common { id, id_span, route, condition, on_error } = read_common(fields, is_plain);
    let (work, routes) = match kind.read {
        Read::Transform(read) => (read(fields).map(Work::Transform), vec![route]),
        Read::Stage(read) => (read(fields).map(Work::Stage), vec![route]),
        Read::Router(read) => read(fields)
            .map_or((None, Vec::new()), |(stage, routes)| (Some(Work::Stage(stage)), routes)),
    };
    let made = work.map(|work| Made { condition, on_error, work });
    let id = if id.is_empty() { kind.name.to_owned() } else { id };
    Item { made, kind: kind.name, id, id_span, routes }
}

fn read_kind(fields: &mut Fields<'_>) -> Option<&'static Kind> {
    let name = fields.required_string("type", "");
    let kind = kinds().find(|kind| kind.name == name);
    if kind.is_none() && !name.is_empty() {
        let message = format!("is `{name}`, and this build of Sluice has no such operator");
        let hint = match nearest(&name, kinds().map(|kind| kind.name)) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "docs/operators.md lists them".to_owned(),
        };
        fields.error_at_with_hint("type", &message, &hint);
    }
    kind
}

/// Gives each operator a name of its own. A type that is used again gets a number.
fn name(fields: &mut Fields<'_>, key: &str, items: &mut [Item]) {
    let mut used: HashMap<&str, usize> = HashMap::new();
    for place in 0..items.len() {
        let kind = items[place].kind;
        if items[place].id != kind || kind.is_empty() {
            continue;
        }
        let number = used.entry(kind).or_default();
        if *number > 0 {
            let taken = |id: &str| items.iter().any(|item| item.id == id);
            while taken(&format!("{kind}{number}")) {
                *number += 1;
            }
            items[place].id = format!("{kind}{number}");
        }
        *number += 1;
    }
    for (place, item) in items.iter().enumerate() {
        let is_taken = items[..place].iter().any(|other| other.id == item.id);
        if is_taken && !item.kind.is_empty() {
            match item.id_span {
                Some(span) => {
                    let message = format!("an operator before has the `id` `{}` too", item.id);
                    fields.push(Diagnostic::error(span, message));
                }
                None => fields.error_at(key, &format!("has two operators `{}`", item.id)),
            }
        }
    }
}

/// For each operator the ways out of it. Nothing if one leads nowhere.
fn wire(fields: &mut Fields<'_>, items: &[Item]) -> Option<Vec<Vec<Vec<usize>>>> {
    let mut all = Vec::new();
    let mut is_whole = true;
    for (place, item) in items.iter().enumerate() {
        let mut ways = Vec::new();
        for route in &item.routes {
            let mut targets = Vec::new();
            for output in &route.outputs {
                let found = items.iter().position(|other| other.id == *output);
                if found.is_none() {
                    let message = format!("there is no operator `{output}` in this list");
                    let ids = items.iter().map(|item| item.id.as_str());
                    let meant = nearest(output, ids.clone());
                    let hint = meant.map_or_else(
                        || format!("its operators are {}", listed(ids)),
                        |id| format!("did you mean `{id}`?"),
                    );
                    fields.push(Diagnostic::error(route.span, message).with_hint(hint));
                    is_whole = false;
                }
                targets.extend(found);
            }
            if route.outputs.is_empty() {
                targets.push(place + 1);
            }
            ways.push(targets);
        }
        all.push(ways);
    }
    is_whole.then_some(all)
}

fn listed<'i>(ids: impl Iterator<Item = &'i str>) -> String {
    let ids: Vec<_> = ids.filter(|id| !id.is_empty()).map(|id| format!("`{id}`")).collect();
    ids.join(", ")
}

/// The operators so that each comes before those to which it leads. Nothing if there is a loop.
fn order(fields: &mut Fields<'_>, items: &[Item], ways: &[Vec<Vec<usize>>]) -> Option<Vec<usize>> {
    let mut incoming = vec![0_usize; items.len() + 1];
    ways.iter().flatten().flatten().for_each(|target| incoming[*target] += 1);
    let mut order = Vec::new();
    let mut ready: Vec<usize> = (0..items.len()).rev().filter(|it| incoming[*it] == 0).collect();
    while let Some(place) = ready.pop() {
        order.push(place);
        for target in ways[place].iter().flatten() {
            incoming[*target] -= 1;
            if incoming[*target] == 0 && *target < items.len() {
                ready.push(*target);
            }
        }
    }
    if order.len() == items.len() {
        return Some(order);
    }
    // Every loop has a way that leads back, which is an `output` of the file.
    for (place, item) in items.iter().enumerate().filter(|(place, _)| !order.contains(place)) {
        for (route, targets) in item.routes.iter().zip(&ways[place]) {
            for target in targets.iter().filter(|target| **target <= place) {
                if let Some(path) = path(ways, *target, place) {
                    let ids: Vec<_> = path.iter().map(|it| items[*it].id.as_str()).collect();
                    let message =
                        format!("the output makes a loop: {} → {}", ids.join(" → "), ids[0]);
                    fields.push(Diagnostic::error(route.span, message));
                    return None;
                }
            }
        }
    }
    None
}

/// Operators from one to another, both included.
fn path(ways: &[Vec<Vec<usize>>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut before = vec![None; ways.len()];
    let mut open = vec![from];
    before[from] = Some(from);
    while let Some(place) = open.pop() {
        if place == to {
            let mut path = vec![to];
            while let Some(previous) =
                before[path[path.len() - 1]].filter(|_| path[path.len() - 1] != from)
            {
                path.push(previous);
            }
            path.reverse();
            return Some(path);
        }
        for target in ways[place].iter().flatten() {
            if *target < ways.len() && before[*target].is_none() {
                before[*target] = Some(place);
                open.push(*target);
            }
        }
    }
    None
}

/// Bounds the copies of a record, and names operators that no record reaches.
fn check_paths(
    fields: &mut Fields<'_>,
    key: &str,
    items: &[Item],
    ways: &[Vec<Vec<usize>>],
    order: &[usize],
) {
    let mut paths = vec![0_usize; items.len() + 1];
    paths[0] = 1;
    for place in order {
        for target in ways[*place].iter().flatten() {
            paths[*target] = paths[*target].saturating_add(paths[*place]);
        }
    }
    if paths.iter().any(|paths| *paths > PATHS_LIMIT) {
        let message = format!("has outputs that copy a record more than {PATHS_LIMIT} times");
        fields.error_at(key, &message);
    }
    let is_whole = items.iter().all(|item| item.made.is_some());
    for (item, _) in items.iter().zip(&paths).filter(|(_, paths)| is_whole && **paths == 0) {
        fields.warn_at(key, &format!("has an operator `{}` that no output leads to", item.id));
    }
}
