//! Recording an entry: one round trip to lock the workspace and learn what there is, one to write everything and commit.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use llmc_store::TenantTransaction;

use super::contents::ObjectColumns;
use super::entries::id_number;
use super::{LOCK, PostgresHistory, SNAPSHOT, known_of, object_id, unavailable};
use crate::compare::Finding;
use crate::entry::EntryId;
use crate::error::Result;
use crate::objects::PackedObject;
use crate::snapshot::Known;
use crate::store::{
    ChangeRow, CommitFound, CommitWork, CommitWrite, Committed, NewEntry, StateColumns,
    snapshot_columns, source_number, state_columns,
};

/// Rows that one statement writes.
const ROWS_PER_STATEMENT: usize = 4_000;
/// How long writing more than that may take.
const LONG_WRITE: Duration = Duration::from_secs(60);

const FIND: &str = "SELECT (SELECT shared FROM llmc.history_active WHERE workspace = $1 AND call = $2), \
    ARRAY(SELECT path FROM llmc.history_snapshot WHERE workspace = $1 \
      AND digest = ANY(ARRAY(SELECT sha256(named.path) FROM unnest($3::bytea[]) AS named (path))))";

const STORED: &str =
    "SELECT id FROM llmc.history_objects WHERE workspace = $1 AND is_complete AND id = ANY($2)";

const SNAPSHOT_ROWS: &str = "INSERT INTO llmc.history_snapshot AS known \
      (workspace, digest, path, gen, kind, mode, size, id, why, mtime_ns, ctime_ns, inode, flags) \
    SELECT $1, sha256(s.path), s.path, $2, s.kind, s.mode, s.size, s.id, s.why, s.mtime_ns, s.ctime_ns, s.inode, s.flags \
    FROM unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bigint[], $9::bigint[], \
      $10::bigint[], $11::bigint[], $12::bigint[]) AS s (path, kind, mode, size, id, why, mtime_ns, ctime_ns, inode, flags) \
    ON CONFLICT (tenant, workspace, digest) DO UPDATE SET gen = excluded.gen, kind = excluded.kind, mode = excluded.mode, \
      size = excluded.size, id = excluded.id, why = excluded.why, mtime_ns = excluded.mtime_ns, \
      ctime_ns = excluded.ctime_ns, inode = excluded.inode, flags = excluded.flags";

const CHANGE_ROWS: &str = "INSERT INTO llmc.history_changes (workspace, entry, path, moved_from, moved_to, \
      old_kind, old_mode, old_size, old_id, old_why, new_kind, new_mode, new_size, new_id, new_why, shared) \
    SELECT $1, $2::bigint, c.* FROM unnest($3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], \
      $9::bytea[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bytea[], $15::bigint[], $16::boolean[]) AS c";

/// The same two, contents and everything else in one statement: the numbers of their parameters are shifted.
fn everything() -> String {
    let shifted = |sql: &str, by: usize| {
        let mut shifted = String::new();
        let mut parts = sql.split('$');
        shifted.extend(parts.next());
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = part[..digits].parse().unwrap_or(0);
            let number = if number < 2 { number } else { number + by };
            shifted.push_str(&format!("${number}{}", &part[digits..]));
        }
        shifted
    };
    let snapshot = shifted(SNAPSHOT_ROWS, 0);
    let changes = shifted(CHANGE_ROWS, 11);
    format!(
        "WITH states AS ({snapshot}), changes AS ({changes}), \
         space AS (UPDATE llmc.history_workspaces SET generation = $2, looked_ns = $28, last_entry = $29, \
           used_on = current_date WHERE number = $1), \
         contents AS (INSERT INTO llmc.history_objects (workspace, id, size, is_compressed, bytes, is_complete, body) \
           SELECT $1, o.id, o.size, o.is_compressed, octet_length(o.body), true, o.body \
           FROM unnest($30::bytea[], $31::bigint[], $32::boolean[], $33::bytea[]) AS o (id, size, is_compressed, body) \
           ON CONFLICT (tenant, workspace, id) WHERE is_complete DO NOTHING), \
         ended AS (DELETE FROM llmc.history_active WHERE workspace = $1 AND call = $34 AND NOT $35::boolean), \
         goes_on AS (UPDATE llmc.history_active SET seen_at = clock_timestamp(), shared = EXISTS ( \
             SELECT 1 FROM llmc.history_active AS o WHERE o.workspace = $1 AND o.call <> $34) \
           WHERE workspace = $1 AND call = $34 AND $35::boolean), \
         done AS (DELETE FROM llmc.history_plans WHERE workspace = $1 AND id = $36), \
         entry AS (INSERT INTO llmc.history_entries (workspace, id, time_ms, batch, source, principal, agent, session, tool, \
             args, created, changed, deleted, moved, not_kept, ignored, shared, head_before, head_after, undoes, steps, \
             not_undoable) \
           SELECT $1, $13::bigint, coalesce($37::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint), $38::text, \
             $39::bigint, $40::bytea, $41::bytea, $42::bytea, $43::bytea, $44::bytea, $45::bigint, $46::bigint, $47::bigint, \
             $48::bigint, $49::bigint, $50::bigint, $51::boolean, $52::bytea, $53::bytea, $54::bigint[], $55::bytea, $56::bytea \
           WHERE $13::bigint IS NOT NULL) \
         SELECT 1"
    )
}

/// What an attempt to commit has written before its connection was lost.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    /// The last entry before it.
    last_entry: i64,
    generation: i64,
}

impl PostgresHistory {
    pub(super) fn commit_work(&self, work: &mut dyn CommitWork) -> Result<Option<Committed>> {
        let number = self.number()?;
        let used_bytes = self.used_about()?;
        let call = work.call().map(str::to_owned);
        let goes_on = work.is_checkpoint();
        let is_long = work.rows() > ROWS_PER_STATEMENT;
        let limit = match is_long {
            true => LONG_WRITE + LONG_WRITE,
            false => Duration::from_secs(6),
        };
        let writer = Writer {
            number,
            used_bytes,
            batch: ulid::Ulid::new().to_string(),
            call: call.as_deref(),
            now_ms: self.clock.manual_ms(),
            is_long,
            attempt: Cell::new(None),
            plan: Cell::new(None),
        };
        // An attempt that lost its connection gives the work back for the next.
        let work = Cell::new(Some(work));
        let done = self.database.transaction_within(limit, async |tx| {
            let Some(taken) = work.take() else {
                return Err(llmc_store::Error::Lost);
            };
            let done = writer.write(tx, taken).await;
            work.set(Some(taken));
            done
        });
        let done = done.map_err(unavailable)?;
        let Some((committed, added)) = done else {
            return Ok(None);
        };
        self.used.add(&added);
        if let Some(plan) = writer.plan.take() {
            self.pulse.end_plan(&plan);
        }
        if let Some(call) = writer.call
            && !goes_on
        {
            self.pulse.end_call(call);
        }
        Ok(Some(committed))
    }
}

/// What was committed, and the contents that were stored with it.
type Written = Option<(Committed, Vec<Arc<PackedObject>>)>;

/// One commit, over its attempts.
struct Writer<'a> {
    number: i64,
    used_bytes: u64,
    batch: String,
    call: Option<&'a str>,
    now_ms: Option<i64>,
    is_long: bool,
    attempt: Cell<Option<Attempt>>,
    /// The plan that is done.
    plan: Cell<Option<String>>,
}

impl Writer<'_> {
    async fn write(
        &self,
        tx: &TenantTransaction<'_>,
        work: &mut dyn CommitWork,
    ) -> llmc_store::Result<Written> {
        if self.is_long {
            tx.allow_statements(LONG_WRITE).await?;
        }
        let number = self.number;
        let paths: Vec<Vec<u8>> = work.paths_to_check().iter().map(|p| p.to_vec()).collect();
        let mut asked = work.contents_to_check(self.used_bytes);
        let ids: Vec<&[u8]> = asked.iter().map(|id| id.0.as_slice()).collect();
        let find = format!("{FIND}, ARRAY({})", STORED.replace("$2", "$4"));
        let (locked, found) = tx
            .query_both(
                (LOCK, &[&number]),
                (&find, &[&number, &self.call, &paths, &ids]),
            )
            .await?;
        let (Some(locked), Some(found)) = (locked.first(), found.first()) else {
            return Ok(None);
        };
        let (store_number, generation, last_entry): (i64, i64, i64) =
            (locked.try_get(0)?, locked.try_get(1)?, locked.try_get(2)?);
        if store_number != work.store_number() {
            return Ok(None);
        }
        let earlier = self.earlier_attempt(tx).await?;
        if earlier.is_some() {
            return Ok(earlier);
        }
        let mut commit = CommitFound {
            generation,
            used_bytes: self.used_bytes,
            stored: ids_of(found.try_get(2)?)?,
            known_paths: found.try_get::<_, Vec<Vec<u8>>>(1)?.into_iter().collect(),
            was_shared: found.try_get::<_, Option<bool>>(0)?.unwrap_or(false),
        };
        if generation > work.generation() {
            work.learn(self.learn(tx, work.generation()).await?);
            // What is to be written may be other contents by now.
            asked = work.contents_to_check(self.used_bytes);
            asked.retain(|id| !commit.stored.contains(id));
            if !asked.is_empty() {
                let ids: Vec<&[u8]> = asked.iter().map(|id| id.0.as_slice()).collect();
                for row in &tx.query(STORED, &[&number, &ids]).await? {
                    commit.stored.extend(object_id(row, 0)?);
                }
            }
        }
        let write = work.decide(commit);
        let entry = write.entry.map(|_| last_entry + 1);
        self.attempt.set(Some(Attempt {
            last_entry,
            generation: write.generation,
        }));
        self.plan.set(write.plan.cloned());
        self.send(tx, &write, entry, last_entry).await?;
        let committed = Committed {
            generation: write.generation,
            entry: entry.map(|id| EntryId(id.cast_unsigned())),
        };
        Ok(Some((committed, write.objects.to_vec())))
    }

    /// What an attempt whose connection was lost has committed after all.
    async fn earlier_attempt(&self, tx: &TenantTransaction<'_>) -> llmc_store::Result<Written> {
        let Some(attempt) = self.attempt.get() else {
            return Ok(None);
        };
        let sql =
            "SELECT id FROM llmc.history_entries WHERE workspace = $1 AND id > $2 AND batch = $3";
        let params: [&(dyn llmc_store::ToSql + Sync); 3] =
            [&self.number, &attempt.last_entry, &self.batch];
        let Some(row) = tx.query_opt(sql, &params).await? else {
            return Ok(None);
        };
        let id: i64 = row.try_get(0)?;
        let committed = Committed {
            generation: attempt.generation,
            entry: Some(EntryId(id.cast_unsigned())),
        };
        Ok(Some((committed, Vec::new())))
    }

    async fn learn(
        &self,
        tx: &TenantTransaction<'_>,
        since: i64,
    ) -> llmc_store::Result<Vec<(Vec<u8>, Option<Known>)>> {
        let sql = format!(
            "SELECT {SNAPSHOT} FROM llmc.history_snapshot AS s WHERE workspace = $1 AND gen > $2"
        );
        let rows = tx.query(&sql, &[&self.number, &since]).await?;
        rows.iter().map(|row| known_of(row, 0)).collect()
    }

    async fn send(
        &self,
        tx: &TenantTransaction<'_>,
        write: &CommitWrite<'_>,
        entry: Option<i64>,
        last_entry: i64,
    ) -> llmc_store::Result<()> {
        let number = self.number;
        if let Some(entry) = entry
            && !write.taken_back.is_empty()
        {
            self.take_back(tx, write, entry).await?;
        }
        // Of a path that was found twice, the last state.
        let mut findings: HashMap<&[u8], &Finding> = HashMap::new();
        for finding in write.findings {
            findings.insert(&finding.path, finding);
        }
        let findings: Vec<&Finding> = findings.into_values().collect();
        let (findings, more) = findings.split_at(findings.len().min(ROWS_PER_STATEMENT));
        for part in more.chunks(ROWS_PER_STATEMENT) {
            let s = StateRows::of(part);
            tx.execute(
                SNAPSHOT_ROWS,
                &[
                    &number,
                    &write.generation,
                    &s.paths,
                    &s.states.kinds,
                    &s.states.modes,
                    &s.states.sizes,
                    &s.states.ids,
                    &s.states.whys,
                    &s.mtimes,
                    &s.ctimes,
                    &s.inodes,
                    &s.flags,
                ],
            )
            .await?;
        }
        let changes = write
            .entry
            .map_or(&[] as &[ChangeRow], |entry| &entry.changes);
        let (changes, more) = changes.split_at(changes.len().min(ROWS_PER_STATEMENT));
        for part in more.chunks(ROWS_PER_STATEMENT) {
            let c = ChangeColumns::of(part);
            tx.execute(
                CHANGE_ROWS,
                &[
                    &number,
                    &entry,
                    &c.paths,
                    &c.from,
                    &c.to,
                    &c.old.kinds,
                    &c.old.modes,
                    &c.old.sizes,
                    &c.old.ids,
                    &c.old.whys,
                    &c.new.kinds,
                    &c.new.modes,
                    &c.new.sizes,
                    &c.new.ids,
                    &c.new.whys,
                    &c.shared,
                ],
            )
            .await?;
        }
        let s = StateRows::of(findings);
        let c = ChangeColumns::of(changes);
        let o = ObjectColumns::of(write.objects);
        let e = EntryColumns::of(write.entry);
        let last_entry = entry.unwrap_or(last_entry);
        let is_checkpoint = write.is_checkpoint;
        let plan = write.plan;
        tx.query_and_commit(
            &everything(),
            &[
                &number,
                &write.generation,
                &s.paths,
                &s.states.kinds,
                &s.states.modes,
                &s.states.sizes,
                &s.states.ids,
                &s.states.whys,
                &s.mtimes,
                &s.ctimes,
                &s.inodes,
                &s.flags,
                &entry,
                &c.paths,
                &c.from,
                &c.to,
                &c.old.kinds,
                &c.old.modes,
                &c.old.sizes,
                &c.old.ids,
                &c.old.whys,
                &c.new.kinds,
                &c.new.modes,
                &c.new.sizes,
                &c.new.ids,
                &c.new.whys,
                &c.shared,
                &write.looked_ns,
                &last_entry,
                &o.ids,
                &o.sizes,
                &o.are_compressed,
                &o.bodies,
                &self.call,
                &is_checkpoint,
                &plan,
                &self.now_ms,
                &self.batch,
                &e.source,
                &e.principal,
                &e.agent,
                &e.session,
                &e.tool,
                &e.args,
                &e.counts[0],
                &e.counts[1],
                &e.counts[2],
                &e.counts[3],
                &e.counts[4],
                &e.counts[5],
                &e.shared,
                &e.head_before,
                &e.head_after,
                &e.undoes,
                &e.steps,
                &e.not_undoable,
            ],
        )
        .await?;
        Ok(())
    }

    /// Marks changes as taken back. Taking back an undo puts in force what it took back.
    async fn take_back(
        &self,
        tx: &TenantTransaction<'_>,
        write: &CommitWrite<'_>,
        by: i64,
    ) -> llmc_store::Result<()> {
        let entries: Vec<i64> = write
            .taken_back
            .iter()
            .map(|(id, _)| id_number(*id))
            .collect();
        let paths: Vec<&[u8]> = write.taken_back.iter().map(|(_, p)| p.as_slice()).collect();
        let clear = "UPDATE llmc.history_changes AS c SET undone_by = NULL \
                     FROM unnest($2::bigint[], $3::bytea[]) AS t (entry, path) \
                     WHERE c.workspace = $1 AND c.undone_by = t.entry AND c.path = t.path";
        let set = "UPDATE llmc.history_changes AS c SET undone_by = $4 \
                   FROM unnest($2::bigint[], $3::bytea[]) AS t (entry, path) \
                   WHERE c.workspace = $1 AND c.entry = t.entry AND sha256(c.path) = sha256(t.path) AND c.path = t.path";
        tx.query_both(
            (clear, &[&self.number, &entries, &paths]),
            (set, &[&self.number, &entries, &paths, &by]),
        )
        .await?;
        Ok(())
    }
}

fn ids_of(ids: Vec<Vec<u8>>) -> llmc_store::Result<HashSet<crate::entry::ObjectId>> {
    ids.into_iter()
        .map(|id| {
            let id: Result<[u8; 20], _> = id.try_into();
            id.map(crate::entry::ObjectId).map_err(|_| super::damaged())
        })
        .collect()
}

/// States as columns.
#[derive(Default)]
struct States {
    kinds: Vec<i64>,
    modes: Vec<i64>,
    sizes: Vec<i64>,
    ids: Vec<Option<Vec<u8>>>,
    whys: Vec<Option<i64>>,
}

impl States {
    fn push(&mut self, (kind, mode, size, id, why): StateColumns) {
        self.kinds.push(kind);
        self.modes.push(mode);
        self.sizes.push(size);
        self.ids.push(id.map(|id| id.0.to_vec()));
        self.whys.push(why);
    }
}

/// Rows of the snapshot as columns.
#[derive(Default)]
struct StateRows<'a> {
    paths: Vec<&'a [u8]>,
    states: States,
    mtimes: Vec<i64>,
    ctimes: Vec<i64>,
    inodes: Vec<i64>,
    flags: Vec<i64>,
}

impl<'a> StateRows<'a> {
    fn of(findings: &[&'a Finding]) -> StateRows<'a> {
        let mut rows = StateRows::default();
        for finding in findings {
            let (columns, stamp) = snapshot_columns(finding);
            rows.paths.push(&finding.path);
            rows.states.push(columns);
            rows.mtimes.push(stamp.mtime_ns);
            rows.ctimes.push(stamp.ctime_ns);
            rows.inodes.push(stamp.inode.cast_signed());
            rows.flags.push(i64::from(stamp.flags));
        }
        rows
    }
}

/// Changes as columns.
#[derive(Default)]
struct ChangeColumns<'a> {
    paths: Vec<&'a [u8]>,
    from: Vec<Option<&'a [u8]>>,
    to: Vec<Option<&'a [u8]>>,
    old: States,
    new: States,
    shared: Vec<bool>,
}

impl<'a> ChangeColumns<'a> {
    fn of(changes: &'a [ChangeRow]) -> ChangeColumns<'a> {
        let mut rows = ChangeColumns::default();
        for change in changes {
            rows.paths.push(&change.path);
            rows.from.push(change.moved_from.as_deref());
            rows.to.push(change.moved_to.as_deref());
            rows.old.push(state_columns(&change.before));
            rows.new.push(state_columns(&change.after));
            rows.shared.push(change.shared);
        }
        rows
    }
}

/// An entry as columns; without one they are not used.
#[derive(Default)]
struct EntryColumns<'a> {
    source: i64,
    principal: &'a [u8],
    agent: &'a [u8],
    session: &'a [u8],
    tool: &'a [u8],
    args: &'a [u8],
    counts: [i64; 6],
    shared: bool,
    head_before: Option<&'a [u8]>,
    head_after: Option<&'a [u8]>,
    undoes: Vec<i64>,
    steps: Vec<u8>,
    not_undoable: Option<&'a [u8]>,
}

impl<'a> EntryColumns<'a> {
    fn of(entry: Option<&'a NewEntry>) -> EntryColumns<'a> {
        let Some(NewEntry {
            source,
            row,
            counts,
            ..
        }) = entry
        else {
            return EntryColumns::default();
        };
        let bytes = |text: &'a Option<String>| text.as_deref().map(str::as_bytes);
        let counts = [
            counts.created,
            counts.changed,
            counts.deleted,
            counts.moved,
            counts.not_kept,
            counts.ignored,
        ];
        EntryColumns {
            source: source_number(*source),
            principal: row.author.principal.as_bytes(),
            agent: row.author.agent.as_bytes(),
            session: row.author.session.as_bytes(),
            tool: row.author.tool.as_bytes(),
            args: row.author.args_short.as_bytes(),
            counts: counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
            shared: row.shared,
            head_before: bytes(&row.head_before),
            head_after: bytes(&row.head_after),
            undoes: row.undoes.iter().map(|id| id_number(*id)).collect(),
            steps: row.steps.join("\n").into_bytes(),
            not_undoable: bytes(&row.not_undoable),
        }
    }
}
