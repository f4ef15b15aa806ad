//! Runs on a copy-on-write view of every writable place: nothing they do reaches the host.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use llmc_host::CancelToken;

use super::{ExecRequest, Launched, RunPlace, Runner};
use crate::error::{Error, Result};
use crate::follow::{Stream, broken, failed, follow};
use crate::layered_run::{BaseLayer, LayeredRun, VIEW_HINT, WrittenLayers};
use crate::plan::{Input, LayeredWrites, outermost};
use crate::protect::Guard;
use crate::settings::Confinement;

/// Views at the same time, each of which may take as much memory as a `/tmp`.
const MAX_VIEWS: usize = 4;

impl Runner {
    /// As [`Runner::run`], on a copy-on-write view: the run reads and writes as any other, and everything that it writes
    /// below the writable places, git directories and the session's `/tmp` included, is in a layer in memory that is dropped
    /// with the result. `fill` puts files over what is there before the run begins.
    ///
    /// What a run writes to the user's caches goes to the private layers, as ever.
    ///
    /// # Errors
    /// As [`Runner::run`]; [`Error::NoView`] where the kernel gives no such view: nothing is run then.
    pub fn run_on_view<E: From<Error>>(
        &self,
        spec: &ExecRequest<'_>,
        fill: impl FnOnce(&BaseLayer<'_>) -> std::result::Result<(), E>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
        stop: &CancelToken,
    ) -> std::result::Result<LayeredRun, E> {
        let _one_of_few = ViewSlot::take(&self.views)?;
        let writes = self.layered_writes()?;
        let places: Vec<PathBuf> = writes.places.iter().map(PathBuf::from).collect();
        let watch = |guard: &Guard| guard.before_view(&self.level);
        let mut launched = self.launch(spec, Input::Nothing, RunPlace::Layers(writes), watch)?;
        // Dropping what was launched ends the run, which has not begun.
        let written = prepare(&mut launched, places, fill)?;
        let report = self.finish(launched, spec, |tree, terms, _| {
            // What the run makes is in the layer: there is nothing to take away on the host.
            follow(tree, terms, on_output, &|| stop.check(), &mut || None)
        })?;
        Ok(LayeredRun { report, written })
    }

    /// The places that a view covers.
    fn layered_writes(&self) -> Result<LayeredWrites> {
        let refused = |why: &str| Error::NoView {
            why: why.to_owned(),
            hint: VIEW_HINT,
        };
        if self.settings.confinement == Confinement::Off {
            return Err(refused("confinement is switched off"));
        }
        if !(self.features.mount && self.features.pid && self.has_view) {
            return Err(refused(
                "this kernel or container gives no mount and pid namespaces",
            ));
        }
        let guard = self.in_force().guard.clone();
        let writable = guard.writable_dirs();
        let places = outermost(&writable);
        if places
            .iter()
            .any(|place| Path::new(place).parent().is_none())
        {
            return Err(refused("commands may write the whole file system"));
        }
        Ok(LayeredWrites {
            places: places.into_iter().map(ToOwned::to_owned).collect(),
            bytes: self.settings.limits.tmp_bytes,
        })
    }
}

/// Fills in the layers of a run that waits for that.
fn prepare<E: From<Error>>(
    launched: &mut Launched,
    places: Vec<PathBuf>,
    fill: impl FnOnce(&BaseLayer<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<WrittenLayers, E> {
    let wrong = |error| broken("a copy-on-write view", error);
    let root = launched
        .tree
        .layers()
        .map_err(wrong)?
        .map_err(|failure| failed(&failure, &launched.program.name))?;
    let written = WrittenLayers::open(root, places).map_err(wrong)?;
    fill(&BaseLayer::new(&written))?;
    launched.tree.seen().map_err(wrong)?;
    Ok(written)
}

/// One of the views that may exist at the same time.
struct ViewSlot<'a>(&'a AtomicUsize);

impl<'a> ViewSlot<'a> {
    fn take(views: &'a AtomicUsize) -> Result<ViewSlot<'a>> {
        let slot = ViewSlot(views);
        match views.fetch_add(1, Ordering::Relaxed) < MAX_VIEWS {
            true => Ok(slot),
            // Dropping the slot takes the count back.
            false => Err(Error::TooManyViews(MAX_VIEWS)),
        }
    }
}

impl Drop for ViewSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
