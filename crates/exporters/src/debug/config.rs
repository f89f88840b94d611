use sluice_config::Fields;

use crate::sending::Sending;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// One line a request.
    Basic,
    /// One line an item.
    Normal,
    /// Every field.
    Detailed,
}

/// Options of `debug`.
#[derive(Clone, Debug)]
pub struct DebugConfig {
    pub verbosity: Verbosity,
    /// So many requests are written in each second,
    pub sampling_initial: u64,
    /// and of the others each n-th; 0: none of them.
    pub sampling_thereafter: u64,
    /// Where to: `stderr` with time and level, or the outputs bare.
    pub use_internal_logger: bool,
    pub output_paths: Vec<String>,
    pub sending: Sending,
}

const LEVELS: [(&str, Verbosity); 3] =
    [("basic", Verbosity::Basic), ("normal", Verbosity::Normal), ("detailed", Verbosity::Detailed)];

impl DebugConfig {
    pub fn read(fields: &mut Fields<'_>) -> DebugConfig {
        let verbosity = fields.choice(
            "verbosity",
            Verbosity::Basic,
            &LEVELS,
            "`basic`: a line a request; `normal`: a line an item; `detailed`: every field.",
        );
        fields.no_effect("loglevel", "it is gone in the Collector; use `verbosity`");
        let config = DebugConfig {
            verbosity,
            sampling_initial: fields.integer(
                "sampling_initial",
                2,
                0..=u64::MAX,
                "So many requests are written in each second.",
            ),
            sampling_thereafter: fields.integer(
                "sampling_thereafter",
                1,
                0..=u64::MAX,
                "Of the others in that second, each n-th is written. 0: none.",
            ),
            use_internal_logger: fields.boolean(
                "use_internal_logger",
                true,
                "Write to stderr, with time and level. If false, to `output_paths`, bare.",
            ),
            output_paths: fields.string_list(
                "output_paths",
                &["stdout"],
                "`stdout`, `stderr` or files, if `use_internal_logger` is false.",
            ),
            sending: Sending { queue: Sending::read_queue(fields), ..Sending::default() },
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
