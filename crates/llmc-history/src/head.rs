//! Which branch and commit are checked out, read from git's files without git.

use llmc_host::{CancelToken, Roots};

/// `HEAD`, a ref and `.git` files are short; packed refs are one line per ref.
const MAX_SMALL_BYTES: usize = 4 << 10;
const MAX_PACKED_BYTES: usize = 4 << 20;

/// What is checked out: `main@<commit>`, `main@` before the first commit, `<commit>` when detached. `None` without a
/// repository whose files can be read.
pub(crate) fn checked_out(roots: &Roots) -> Option<String> {
    let dir = git_dir(roots)?;
    let head = read(roots, &format!("{dir}/HEAD"), MAX_SMALL_BYTES)?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else {
        return is_commit(&head).then_some(head);
    };
    if !name.starts_with("refs/") || name.contains("..") {
        return None;
    }
    let common = read(roots, &format!("{dir}/commondir"), MAX_SMALL_BYTES);
    let shared = common.map(|common| match common.starts_with('/') {
        true => common,
        false => format!("{dir}/{common}"),
    });
    let commit = [Some(&dir), shared.as_ref()]
        .into_iter()
        .flatten()
        .find_map(|dir| commit_of(roots, dir, name));
    let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
    Some(format!("{branch}@{}", commit.unwrap_or_default()))
}

/// The command that has `before` checked out again, given what an undone call left checked out.
pub(crate) fn command_back(before: &str, after: &str) -> Option<String> {
    if before == after {
        return None;
    }
    let split = |head: &str| -> (Option<String>, String) {
        match head.rsplit_once('@') {
            Some((branch, commit)) => (Some(branch.to_owned()), commit.to_owned()),
            None => (None, head.to_owned()),
        }
    };
    let ((old_branch, old_commit), (new_branch, new_commit)) = (split(before), split(after));
    let quote = |name: &str| match name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    };
    match old_branch {
        Some(branch) if new_branch.as_ref() == Some(&branch) => {
            (!old_commit.is_empty()).then(|| format!("git reset --soft {old_commit}"))
        }
        // A mixed state: the files are as they were, so only HEAD is moved.
        Some(branch) => {
            let mut command = format!("git symbolic-ref HEAD refs/heads/{}", quote(&branch));
            if !old_commit.is_empty() {
                command.push_str(" && git reset");
            }
            Some(command)
        }
        None if !old_commit.is_empty() && old_commit != new_commit => Some(format!(
            "git update-ref --no-deref HEAD {old_commit} && git reset"
        )),
        None => Some(format!("git checkout --detach {old_commit}")),
    }
}

/// The repository's directory: `.git`, or where a `.git` file leads.
fn git_dir(roots: &Roots) -> Option<String> {
    if roots.is_dir(".git").ok()? {
        return Some(".git".to_owned());
    }
    let file = read(roots, ".git", MAX_SMALL_BYTES)?;
    Some(file.strip_prefix("gitdir:")?.trim().to_owned())
}

fn commit_of(roots: &Roots, dir: &str, name: &str) -> Option<String> {
    if let Some(commit) = read(roots, &format!("{dir}/{name}"), MAX_SMALL_BYTES) {
        return is_commit(&commit).then_some(commit);
    }
    let packed = read(roots, &format!("{dir}/packed-refs"), MAX_PACKED_BYTES)?;
    packed.lines().find_map(|line| {
        let (commit, found) = line.split_once(' ')?;
        (found == name && is_commit(commit)).then(|| commit.to_owned())
    })
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn read(roots: &Roots, path: &str, limit: usize) -> Option<String> {
    let file = roots.open_file(path).ok()?;
    let bytes = file.read_all(limit, &CancelToken::default()).ok()?;
    Some(String::from_utf8(bytes).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_moves_head_alone() {
        let commits = ["1".repeat(40), "2".repeat(40)];
        let [one, two] = &commits;
        for (before, after, expected) in [
            (format!("main@{one}"), format!("main@{one}"), None),
            (
                format!("main@{one}"),
                format!("main@{two}"),
                Some(format!("git reset --soft {one}")),
            ),
            (
                format!("main@{one}"),
                format!("topic@{two}"),
                Some("git symbolic-ref HEAD refs/heads/main && git reset".to_owned()),
            ),
            (
                one.clone(),
                two.clone(),
                Some(format!("git update-ref --no-deref HEAD {one} && git reset")),
            ),
            ("main@".to_owned(), format!("main@{one}"), None),
        ] {
            assert_eq!(command_back(&before, &after), expected, "{before} {after}");
        }
    }
}
