use sluice_config::Fields;

use crate::sending::Sending;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// One line a request.
    Basic,
    /// One line an item.
    Normal,
    /// Every field.
    Detailed,
}

/// Options of `debug`.
#[derive(Clone, Debug)]
pub(crate) struct DebugConfig {
    pub verbosity: Verbosity,
    /// This number of requests is written in each second,
    pub sampling_initial: u64,
    /// and of the others every n-th; 0: none of them.
    pub sampling_thereafter: u64,
    /// Where to: `stderr` with time and level, or the outputs bare.
    pub use_internal_logger: bool,
    pub output_paths: Vec<String>,
    pub sending: Sending,
}

const LEVELS: [(&str, Verbosity); 3] =
    [("basic", Verbosity::Basic), ("normal", Verbosity::Normal), ("detailed", Verbosity::Detailed)];

impl DebugConfig {
    pub(crate) fn read(fields: &mut Fields<'_>) -> DebugConfig {
        let doc = "`basic`: a line a request; `normal`: a line an item; `detailed`: every field.";
        let verbosity = fields.choice("verbosity", Verbosity::Basic, &LEVELS, doc);
        fields.no_effect("loglevel", "it is gone in the Collector; use `verbosity`");
        let doc = "This number of requests is written in each second.";
        let sampling_initial = fields.integer("sampling_initial", 2, 0..=u64::MAX, doc);
        let doc = "Of the others in that second, every n-th is written. 0: none.";
        let sampling_thereafter = fields.integer("sampling_thereafter", 1, 0..=u64::MAX, doc);
        let doc =
            "Write to stderr, with time and level. If false, to `output_paths`, without them.";
        let use_internal_logger = fields.boolean("use_internal_logger", true, doc);
        let doc = "`stdout`, `stderr` or files, if `use_internal_logger` is false.";
        let output_paths = fields.string_list("output_paths", &["stdout"], doc);
        let sending = Sending { queue: Sending::read_queue(fields), ..Sending::default() };
        let config = DebugConfig {
            verbosity,
            sampling_initial,
            sampling_thereafter,
            use_internal_logger,
            output_paths,
            sending,
        };
        if config.use_internal_logger && fields.is_present("output_paths") {
            fields.error_at("output_paths", "needs `use_internal_logger: false`");
        }
        if config.output_paths.is_empty() {
            fields.error_at("output_paths", "must not be empty");
        }
        config
    }
}
