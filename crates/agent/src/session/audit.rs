//! What operators ask of a service and what comes of it, for the record of the host's owner.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use outpour_core::blocks::Want;
use outpour_core::manifest::ObjectId;
use outpour_core::text::escape;
use outpour_net::trust::{self, Revoked, Serial, shown};
use outpour_protocols::coordinator::Report;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::places::{Place, Places};
use crate::budget::{Memory, NoRoom};
use crate::control::{Admission, CommandSays, TAG_REVOKED};

/// How long a cast may take to end in order once its operator was revoked; then it is cut off.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// How much of a text from outside is written down, in characters.
const TEXT_CHARS_MAX: usize = 1024;

/// What a host's agent is asked to be, or to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Task {
    /// Nothing that was heard.
    Call,
    /// To get an object.
    Receive,
    /// To pass blocks on and keep none.
    Relay,
    /// To read an object and give it.
    Give,
    /// To say what of an object is here.
    Look,
    /// To measure the network.
    Measure,
    /// To renew its own certificate.
    Renew,
    /// To take note of revoked operators.
    Revoke,
}

impl Task {
    const fn verb(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Receive => "receive",
            Self::Relay => "relay",
            Self::Give => "give",
            Self::Look => "look for",
            Self::Measure => "measure the network",
            Self::Renew => "renew its identity",
            Self::Revoke => "note revoked operators",
        }
    }
}

/// What came of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// It begins; another line follows when it is over.
    Accepted,
    /// It does not begin.
    Refused,
    /// The object is here: every byte is verified, in place and durable.
    Verified,
    /// It is over, and nothing was to be verified.
    Ended,
    /// It began, and did not succeed.
    Failed,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Verified => "verified",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// Something an operator asked for, or what came of it. Text that others chose is escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited {
    /// The operator's name, as its certificate has it.
    pub operator: String,
    /// The number of that certificate.
    pub serial: Serial,
    /// From where it called.
    pub address: IpAddr,
    /// What it asked for.
    pub task: Task,
    /// What the object is called, and who casts it, by the operator's own account.
    pub object: Option<String>,
    /// The id of the object's manifest.
    pub id: Option<String>,
    /// The destination, or where the object is read.
    pub path: Option<String>,
    /// What came of it.
    pub verdict: Verdict,
    /// Why, if it was refused or failed.
    pub why: Option<String>,
}

impl std::fmt::Display for Audited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            operator,
            address,
            task,
            ..
        } = self;
        write!(f, "operator {operator} from {address}: {}", task.verb())?;
        if let Some(object) = &self.object {
            write!(f, " {}", quoted(object))?;
        }
        if let Some(path) = &self.path {
            let preposition = match (task, &self.object) {
                (Task::Give | Task::Look, Some(_)) => " at",
                (Task::Give | Task::Look, None) => "",
                _ => " to",
            };
            write!(f, "{preposition} {}", quoted(path))?;
        }
        write!(f, ": {}", self.verdict.word())?;
        match &self.why {
            Some(why) => write!(f, ": {}", quoted(why)),
            None => Ok(()),
        }
    }
}

/// Text that others chose, so that it cannot pass for the rest of a line.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', r#"\""#))
}

/// Where what is audited goes.
pub type Audit = Arc<dyn Fn(Audited) + Send + Sync>;

/// An operator at the other end of a service's control channel.
#[derive(Clone)]
pub struct Caller {
    /// As it has proved to be.
    pub operator: trust::Caller,
    /// From where it calls.
    pub address: IpAddr,
    /// The identity of the service, which operators renew and tell who was revoked.
    pub identity: trust::Agent,
    /// Which operators were revoked, now and later.
    pub revoked: watch::Receiver<Arc<Revoked>>,
    /// Where goes what it asks for and what comes of that.
    pub audit: Audit,
    /// What all operators share.
    pub places: Arc<Places>,
    /// The place that it has; none as long as it has said nothing.
    pub place: Option<Arc<Place>>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("operator", &self.operator)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Caller {
    /// Memory for what it asks for; waits for it for a while.
    pub(super) async fn memory(&self, bytes: u64) -> Result<Memory, NoRoom> {
        self.places.memory(&self.operator.name, bytes).await
    }

    /// Why nothing more is done for it once it was revoked.
    fn farewell(&self) -> String {
        let (name, serial) = (&self.operator.name, &self.operator.serial);
        format!("operator {name} was revoked (certificate {serial})")
    }

    /// Why nothing is done for it any more, though it has proved who it is; `None` if it counts.
    pub fn no_longer(&self) -> Option<String> {
        if self.revoked.borrow().has(&self.operator.serial) {
            return Some(self.farewell());
        }
        let (name, until) = (&self.operator.name, self.operator.until);
        let expired = || {
            format!(
                "the identity of operator {name} expired at {}",
                shown(until)
            )
        };
        (until < SystemTime::now()).then(expired)
    }

    /// Waits until it was revoked and has had the time to leave; says why.
    pub async fn until_cut_off(&self) -> String {
        let why = self.until_revoked().await;
        tokio::time::sleep(LEAVE_WAIT).await;
        why
    }

    /// Waits until it is revoked, and says so.
    pub async fn until_revoked(&self) -> String {
        let mut revoked = self.revoked.clone();
        let waited = revoked.wait_for(|list| list.has(&self.operator.serial));
        if waited.await.is_err() {
            // The service ends, and its casts with it.
            std::future::pending::<()>().await;
        }
        self.farewell()
    }
}

/// What is written down of one control channel: one line when its task is accepted or refused, and,
/// if it was accepted, another when it is over. Nothing for an agent without a service.
#[derive(Clone, Default)]
pub(crate) struct Entry(Option<Arc<Open>>);

struct Open {
    audit: Audit,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    about: Audited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked for.
    Silent,
    Asked,
    Accepted,
    Over,
}

impl Open {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on to a stage that comes after the ones given, and writes it down; else does nothing.
    fn enter(&self, from: &[Stage], to: Stage, verdict: Verdict, why: Option<&str>) {
        let mut state = self.state();
        if !from.contains(&state.stage) {
            return;
        }
        state.stage = to;
        let audited = Audited {
            verdict,
            why: why.map(cut),
            ..state.about.clone()
        };
        drop(state);
        (self.audit)(audited);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let (accepted, asked) = (&[Stage::Accepted], &[Stage::Asked]);
        let why = Some("the agent ended before the cast did");
        self.enter(accepted, Stage::Over, Verdict::Failed, why);
        let why = Some("the command went away");
        self.enter(asked, Stage::Over, Verdict::Refused, why);
    }
}

impl Entry {
    pub(super) fn of(caller: Option<&Caller>) -> Self {
        let Some(caller) = caller else {
            return Self(None);
        };
        let about = Audited {
            operator: cut(&caller.operator.name),
            serial: caller.operator.serial.clone(),
            address: caller.address,
            task: Task::Receive,
            object: None,
            id: None,
            path: None,
            verdict: Verdict::Accepted,
            why: None,
        };
        Self(Some(Arc::new(Open {
            audit: caller.audit.clone(),
            state: Mutex::new(State {
                stage: Stage::Silent,
                about,
            }),
        })))
    }

    /// Of an operator for which nothing is done: there is a line though it says nothing.
    pub(super) fn called(caller: &Caller) -> Self {
        let entry = Self::of(Some(caller));
        if let Some(open) = &entry.0 {
            let mut state = open.state();
            state.about.task = Task::Call;
            state.stage = Stage::Asked;
        }
        entry
    }

    /// The first thing that the command says, where that is too long to be read and begins like this. Only
    /// an admission or a list of revoked operators is so long.
    pub(super) fn ask_unread(&self, tag: u8) {
        if let Some(open) = &self.0 {
            open.state().about.task = match tag {
                TAG_REVOKED => Task::Revoke,
                _ => Task::Receive,
            };
        }
    }

    /// The first thing that the command says is what it asks for.
    pub(super) fn ask(&self, first: &CommandSays) {
        let Some(open) = &self.0 else { return };
        let mut state = open.state();
        let (task, path) = match first {
            CommandSays::Admit(admission) => {
                admit(&mut state.about, admission);
                let task = match admission.want {
                    Want::Nothing => Task::Relay,
                    Want::All | Want::Blocks(_) => Task::Receive,
                };
                (task, Some(&admission.path))
            }
            CommandSays::Survey { path, .. } => (Task::Give, Some(path)),
            CommandSays::Look { path, .. } => (Task::Look, Some(path)),
            CommandSays::Probe(_) => (Task::Measure, None),
            CommandSays::Renew => (Task::Renew, None),
            CommandSays::Revoked { .. } => (Task::Revoke, None),
            _ => return,
        };
        debug_assert!(matches!(state.stage, Stage::Silent | Stage::Asked));
        state.stage = Stage::Asked;
        state.about.task = task;
        state.about.path = path.map(|path| cut_escaped(escape_path(path)));
    }

    /// What is known of the cast once a source is admitted to it.
    pub(super) fn admit(&self, admission: &Admission) {
        if let Some(open) = &self.0 {
            admit(&mut open.state().about, admission);
        }
    }

    pub(super) fn accept(&self) {
        self.enter(&[Stage::Asked], Stage::Accepted, Verdict::Accepted, None);
    }

    /// It does not begin, or fails if it has begun.
    pub(super) fn refuse(&self, why: &str) {
        self.enter(&[Stage::Asked], Stage::Over, Verdict::Refused, Some(why));
        self.enter(&[Stage::Accepted], Stage::Over, Verdict::Failed, Some(why));
    }

    /// It is over, if nothing else was said of its end: what was to come has not come then.
    pub(super) fn end(&self) {
        if self.is(Task::Receive) {
            return self.refuse("the cast ended before everything was here and verified");
        }
        let stages = &[Stage::Asked, Stage::Accepted];
        self.enter(stages, Stage::Over, Verdict::Ended, None);
    }

    /// Notes what a node reports of its end.
    pub(super) fn report(&self, report: &Report) {
        match report {
            Report::Complete { .. } if self.is(Task::Receive) => {
                self.enter(&[Stage::Accepted], Stage::Over, Verdict::Verified, None);
            }
            Report::Failed { error } | Report::Refused { error } => self.refuse(error),
            _ => {}
        }
    }

    fn is(&self, task: Task) -> bool {
        let open = self.0.as_ref();
        open.is_some_and(|open| open.state().about.task == task)
    }

    fn enter(&self, from: &[Stage], to: Stage, verdict: Verdict, why: Option<&str>) {
        if let Some(open) = &self.0 {
            open.enter(from, to, verdict, why);
        }
    }
}

fn admit(about: &mut Audited, admission: &Admission) {
    about.object = Some(cut(&admission.label));
    about.id = Some(ObjectId(admission.manifest.id).to_string());
}

/// Text from outside, as it may be shown.
fn cut(text: &str) -> String {
    // One more, so that it shows that there was more.
    let shown: String = text.chars().take(TEXT_CHARS_MAX + 1).collect();
    cut_escaped(escape(&shown).into_owned())
}

/// A path likewise; what is no text is in hexadecimal digits.
fn escape_path(path: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in path.utf8_chunks() {
        shown += &escape(chunk.valid());
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

fn cut_escaped(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn entry(lines: &Arc<Mutex<Vec<String>>>) -> Entry {
        let lines = Arc::clone(lines);
        let about = Audited {
            operator: "ana".to_owned(),
            serial: serial(),
            address: IpAddr::from([10, 0, 0, 1]),
            task: Task::Receive,
            object: None,
            id: None,
            path: None,
            verdict: Verdict::Accepted,
            why: None,
        };
        Entry(Some(Arc::new(Open {
            audit: Arc::new(move |audited| lines.lock().unwrap().push(audited.to_string())),
            state: Mutex::new(State {
                stage: Stage::Silent,
                about,
            }),
        })))
    }

    fn serial() -> Serial {
        postcard::from_bytes(&postcard::to_stdvec("4f").unwrap()).unwrap()
    }

    fn lines_of(play: impl FnOnce(Entry)) -> Vec<String> {
        let lines = Arc::default();
        play(entry(&lines));
        let lines = lines.lock().unwrap();
        lines.clone()
    }

    fn ask(entry: &Entry) {
        let path = b"/srv/x\n".to_vec();
        entry.ask(&CommandSays::Survey {
            path,
            archive: false,
        });
    }

    const WHO: &str = "operator ana from 10.0.0.1: give \"/srv/x\\n\": ";

    #[test]
    fn each_task_has_one_line_for_its_beginning_and_one_for_its_end() {
        let said = lines_of(|entry| {
            ask(&entry);
            entry.accept();
            entry.accept();
            entry.refuse("no\u{1b}[2J");
            entry.end();
        });
        let failed = format!(r#"{WHO}failed: "no\u{{1b}}[2J""#);
        assert_eq!(said, [format!("{WHO}accepted"), failed]);
        let said = lines_of(|entry| {
            ask(&entry);
            entry.refuse("no");
            entry.accept();
            entry.end();
        });
        assert_eq!(said, [format!("{WHO}refused: \"no\"")]);
    }

    #[test]
    fn what_just_stops_is_written_down_too() {
        let said = lines_of(|entry| {
            ask(&entry);
            entry.accept();
        });
        let failed = format!("{WHO}failed: \"the agent ended before the cast did\"");
        assert_eq!(said[1..], [failed]);
        let said = lines_of(|entry| ask(&entry));
        assert_eq!(said, [format!("{WHO}refused: \"the command went away\"")]);
        assert!(lines_of(drop).is_empty(), "nothing was asked for");
    }

    #[test]
    fn only_what_was_received_is_verified() {
        let complete = Report::Complete { received_bytes: 1 };
        let said = lines_of(|entry| {
            ask(&entry);
            entry.accept();
            entry.report(&complete);
            entry.end();
        });
        assert_eq!(said[1..], [format!("{WHO}ended")]);
    }

    #[test]
    fn nothing_that_an_operator_chooses_passes_for_the_agents_words() {
        let said = lines_of(|entry| {
            let path = "/x\": verified\u{2028}operator \\u{200b}\u{200b}eve".as_bytes();
            let path = [path, &[0xff]].concat();
            entry.ask(&CommandSays::Survey {
                path,
                archive: false,
            });
            entry.accept();
            entry.end();
        });
        let quoted = r#""/x\": verified\u{2028}operator \\u{200b}\u{200b}eve\xff""#;
        let begins = "operator ana from 10.0.0.1: give";
        assert_eq!(said[0], format!("{begins} {quoted}: accepted"));
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = "x".repeat(100_000);
        assert_eq!(cut(&long).len(), TEXT_CHARS_MAX + 3);
        assert!(cut(&"\u{1b}".repeat(1000)).len() <= TEXT_CHARS_MAX + 3);
    }
}
