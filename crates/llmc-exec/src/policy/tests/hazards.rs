//! Hazards of the programs that the built-in rules allow.

use std::sync::LazyLock;

/// A program, letters and long flags that are hazards; letters and long flags that take a value.
pub(super) type Row = (
    &'static str,
    &'static str,
    Vec<&'static str>,
    &'static str,
    Vec<&'static str>,
);

/// What starts programs, writes or reads unchecked places, listed independently of the rules.
pub(super) static HAZARDS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let rows = TABLE.lines().map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let list = |at: usize| cells[at].split_whitespace().collect();
        (cells[0], cells[1], list(2), cells[3], list(4))
    });
    rows.collect()
});

const TABLE: &str = "\
rg | zL | --pre --pre-glob --hostname-bin --search-zip --follow | ABCEMTdefgjmrt | --regexp --glob --max-count \
    --replace\n\
grep | RD | --dereference-recursive --devices --exclude-from | ABCdefm | --regexp --file --context --include\n\
tail | fFs | --follow --retry --pid --sleep-interval | nc | --lines --bytes\n\
wc |  | --files0-from |  | --total\n\
ls | LH | --dereference --dereference-command-line | ITw | --sort --ignore\n\
stat | L | --dereference | c | --format --printf\n\
file | fCmzZsL | --files-from --compile --magic-file --uncompress --special-files --dereference | F | --separator\n\
diff | lX | --paginate --exclude-from --from-file --to-file | UCWIFx | --label --width --exclude\n\
sed | if | --in-place --file --follow-symlinks | e | --expression\n\
cat |  |  |  | \n\
head |  |  | nc | --lines\n\
find |  | -exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -L -H -follow -files0-from |  | -name \
    -path -regex -newer -size -printf -maxdepth -type -samefile -mtime -perm\n\
git |  | -c -C --git-dir --exec-path --work-tree --config-env --output --no-index --ext-diff --textconv \
    --contents --open-files-in-pager --show-signature --recurse-submodules --submodule --upload-pack --exec \
    --orderfile --filters --stdin --delete --edit-description --dirty |  | --since --format --author --grep \
    --date";

/// Words that are no hazard by themselves.
pub(super) const WORDS: &[&str] = &[
    "a",
    "src/b.rs",
    "1,5p",
    "s/x/y/e",
    "-n",
    "-e",
    "-i",
    "-l",
    "-r",
    "-5",
    "--",
    "3",
    "*.rs",
    "-nA",
    "-A",
    "-A3",
    "-C",
    "--color=never",
    "HEAD",
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "grep",
    "branch",
    "/etc/passwd",
    "../x",
    "-",
    "",
    "-U",
    "-p",
    "-S",
    "-name",
    "-type",
    "f",
    "-o",
    "(",
    ")",
];
