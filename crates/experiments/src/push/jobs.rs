//! Jobs: parts of an experiment that need nothing from each other, and what they leave.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::BenchPushOptions;
use crate::sweep::{Figure, Row};
use crate::{ExperimentError, machine};

/// What jobs leave is small; a larger file is none of theirs.
const FILE_BYTES_MAX: u64 = 64 << 20;

type Work = Box<dyn Fn() -> Result<Vec<Part>, String> + Send + Sync>;

/// Something to measure, by name.
pub struct Job {
    name: String,
    settings: String,
    work: Work,
}

/// What a job found about one system in one situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// What it is compared as.
    pub(crate) series: String,
    /// Where it stands on the axis, if there is one.
    pub(crate) at: Option<f64>,
    /// What was drawn for it, if something was: parts with the same seed can be compared one by one.
    pub(crate) seed: Option<u64>,
    /// Figures by name, with their unit in the name; all are finite.
    pub(crate) figures: BTreeMap<String, f64>,
    /// Curves by name: what was seen at what.
    pub(crate) curves: BTreeMap<String, Vec<(f64, f64)>>,
}

/// What a job left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    job: String,
    /// What it depends on besides its name.
    settings: String,
    /// How long it took, in seconds.
    pub(crate) wall_s: f64,
    /// What went wrong.
    pub(crate) error: Option<String>,
    pub(crate) parts: Vec<Part>,
}

impl Job {
    /// A job of an experiment; `settings` are what it depends on besides its name.
    pub(crate) fn new(
        experiment: &str,
        name: &str,
        settings: impl fmt::Display,
        work: impl Fn() -> Result<Vec<Part>, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: format!("{experiment}.{name}"),
            settings: settings.to_string(),
            work: Box::new(work),
        }
    }

    /// Its name: that of the experiment, a dot, and which it is of that.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Part {
    pub(crate) fn new(series: impl Into<String>, at: Option<f64>) -> Self {
        Self {
            series: series.into(),
            at,
            ..Self::default()
        }
    }

    /// What it was drawn from.
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// A figure; none if it is not finite, which JSON cannot say.
    pub(crate) fn figure(mut self, name: &str, value: f64) -> Self {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
        self
    }

    /// A curve, of which points that are not finite are left out.
    pub(crate) fn curve(mut self, name: &str, mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        self.curves.insert(name.to_owned(), points);
        self
    }
}

/// The files of jobs. Their names have a hash of all that a job depends on: what was found with other settings,
/// or by another build of this program, stays beside it and is not taken for it.
pub(crate) struct Store {
    directory: PathBuf,
    common: String,
}

impl Store {
    /// The directory of the options, which is made if it is missing.
    ///
    /// # Errors
    /// If it cannot be made, or this program cannot be read.
    pub(crate) fn new(options: &BenchPushOptions) -> Result<Self, ExperimentError> {
        let directory = options.jobs.clone();
        fs::create_dir_all(&directory).map_err(|e| ExperimentError::file(&directory, &e))?;
        let short = if options.short { ", short" } else { "" };
        let program = machine::program()?;
        Ok(Self {
            directory,
            common: format!("program {program}{short}"),
        })
    }

    fn path(&self, job: &Job) -> PathBuf {
        let settings = machine::hash(self.settings(job).as_bytes());
        self.directory.join(format!("{}.{settings}.json", job.name))
    }

    fn settings(&self, job: &Job) -> String {
        format!("{}, {}", self.common, job.settings)
    }

    /// What the job found, if it was run with the same settings and did not fail. A file that cannot be read is
    /// none: `progress` is told why, and the job is done again.
    pub(crate) fn read(
        &self,
        job: &Job,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Option<Left> {
        let path = self.path(job);
        let left = match read(&path) {
            Ok(left) => left?,
            Err(why) => {
                let name = &job.name;
                progress(format_args!(
                    "{name}: {}: {why}; done again",
                    path.display()
                ));
                return None;
            }
        };
        let is_same = left.job == job.name && left.settings == self.settings(job);
        (is_same && left.error.is_none()).then_some(left)
    }

    /// Runs a job and writes what it found.
    ///
    /// # Errors
    /// If that cannot be written. A job that fails has found that.
    pub(crate) fn run(
        &self,
        job: &Job,
        progress: &(dyn Fn(fmt::Arguments<'_>) + Sync),
    ) -> Result<Left, ExperimentError> {
        let begun = machine::now();
        let (parts, error) = match (job.work)() {
            Ok(parts) => (parts, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let left = Left {
            job: job.name.clone(),
            settings: self.settings(job),
            wall_s: begun.elapsed().as_secs_f64(),
            error,
            parts,
        };
        let said = left.error.as_deref().unwrap_or("measured");
        progress(format_args!("{}: {said}, {:.1} s", job.name, left.wall_s));
        self.write(job, &left)?;
        Ok(left)
    }

    /// Written beside and moved over: whoever is stopped in between leaves no half file.
    fn write(&self, job: &Job, left: &Left) -> Result<(), ExperimentError> {
        let path = self.path(job);
        let fail = |why: &dyn fmt::Display| ExperimentError::file(&path, why);
        let file = tempfile::NamedTempFile::new_in(&self.directory).map_err(|e| fail(&e))?;
        serde_json::to_writer(&file, left).map_err(|e| fail(&e))?;
        file.persist(&path).map_err(|e| fail(&e))?;
        Ok(())
    }
}

/// What a job left in a file, if there is one.
fn read(path: &Path) -> Result<Option<Left>, String> {
    let size = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if size > FILE_BYTES_MAX {
        return Err("it is too large for what a job leaves".to_owned());
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Parts about the same system in the same situation are one row, in the order in which they first
/// come; its curves are those of the first.
pub(crate) fn rows(parts: &[Part]) -> Vec<Row> {
    let mut rows: Vec<(Row, Vec<&Part>)> = Vec::new();
    for part in parts {
        let is_of = |row: &Row| row.series == part.series && row.at == part.at;
        match rows.iter_mut().find(|(row, _)| is_of(row)) {
            Some((_, all)) => all.push(part),
            None => rows.push((Row::new(&part.series, part.at), vec![part])),
        }
    }
    let filled = rows.into_iter().map(|(mut row, all)| {
        for name in all.iter().flat_map(|part| part.figures.keys()) {
            let values = all.iter().filter_map(|part| part.figures.get(name));
            let figure = || Figure::of(values.copied());
            row.figures.entry(name.clone()).or_insert_with(figure);
        }
        for part in all.iter().rev() {
            row.curves.extend(part.curves.clone());
        }
        row
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn options(directory: &Path) -> BenchPushOptions {
        BenchPushOptions {
            seed: 1,
            short: false,
            threads: 1,
            jobs: directory.to_owned(),
            tasks: 10,
            instances: Some(1),
            size_factor: 1.0,
            sizes: PathBuf::new(),
            links: PathBuf::new(),
        }
    }

    #[test]
    fn a_job_is_done_once_with_the_same_settings() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(&options(directory.path())).unwrap();
        let times = Arc::new(AtomicU32::new(0));
        let job = |settings: &'static str| {
            let times = Arc::clone(&times);
            Job::new("e", "a", settings, move || {
                times.fetch_add(1, Ordering::Relaxed);
                Ok(vec![Part::new("s", Some(0.1)).figure("f", 0.1 + 0.2)])
            })
        };
        assert!(store.read(&job("1"), &|_| ()).is_none());
        let left = store.run(&job("1"), &|_| ()).unwrap();
        let again = store.read(&job("1"), &|_| ()).unwrap();
        assert_eq!(
            (left.parts, times.load(Ordering::Relaxed)),
            (again.parts, 1)
        );
        assert!(store.read(&job("2"), &|_| ()).is_none());
        let short = BenchPushOptions {
            short: true,
            ..options(directory.path())
        };
        let short = Store::new(&short).unwrap();
        assert!(short.read(&job("1"), &|_| ()).is_none());
        // What other settings find is kept beside it.
        store.run(&job("2"), &|_| ()).unwrap();
        short.run(&job("1"), &|_| ()).unwrap();
        assert!(store.read(&job("1"), &|_| ()).is_some());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_failed_or_cannot_be_read_is_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(&options(directory.path())).unwrap();
        let job = Job::new("e", "a", 1, || Err("no".to_owned()));
        let left = store.run(&job, &|_| ()).unwrap();
        assert_eq!(left.error.as_deref(), Some("no"));
        assert!(store.read(&job, &|_| ()).is_none());
        fs::write(store.path(&job), "{").unwrap();
        let said = std::sync::Mutex::new(String::new());
        let tell = |line: fmt::Arguments<'_>| *said.lock().unwrap() = line.to_string();
        assert!(store.read(&job, &tell).is_none());
        let said = said.lock().unwrap();
        assert!(
            said.starts_with("e.a: ") && said.contains("done again"),
            "{said}"
        );
    }

    #[test]
    fn what_is_not_finite_is_left_out_and_the_rest_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(&options(directory.path())).unwrap();
        let job = Job::new("e", "a", "", || {
            let points = vec![(0.0, 1.0), (1.0, f64::NAN)];
            let part = Part::new("s", None).figure("none", f64::NAN);
            let part = part.figure("endless", f64::INFINITY).figure("f", 1.0);
            Ok(vec![part.curve("c", points)])
        });
        store.run(&job, &|_| ()).unwrap();
        let part = &store.read(&job, &|_| ()).unwrap().parts[0];
        assert_eq!(part.figures.keys().collect::<Vec<_>>(), ["f"]);
        assert_eq!(part.curves["c"], [(0.0, 1.0)]);
    }

    #[test]
    fn parts_of_the_same_become_a_row() {
        let part = |series: &str, at: f64, value: f64| {
            let curve = vec![(0.0, value)];
            Part::new(series, Some(at))
                .figure("f", value)
                .curve("c", curve)
        };
        let parts = [
            part("a", 1.0, 2.0),
            part("b", 1.0, 9.0),
            part("a", 1.0, 4.0),
        ];
        let rows = rows(&parts);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].mean("f"), Some(3.0));
        assert_eq!(rows[0].figures["f"].runs, 2);
        assert_eq!(rows[0].curves["c"], [(0.0, 2.0)]);
    }
}
