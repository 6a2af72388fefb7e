//! The way to a destination as far as it is there, walked as a cast would walk it, but for what it
//! would make.

use super::*;

/// Where a destination would be.
pub(crate) struct Existing {
    /// Its root directory, or the last directory on the way that is there.
    pub(crate) dir: OwnedFd,
    /// The first directory that would be made in it; nothing if the root is there.
    pub(crate) missing: Option<PathBuf>,
    /// The path of the root.
    pub(crate) path: PathBuf,
    /// The name of the file, if the object is one.
    pub(crate) file_name: Option<Vec<u8>>,
}

/// Walks to the directory of a tree that would go to `path`, or, with the name of a file, to the one
/// that it would go into, as [`reach_tree`] and [`reach_file`] do.
///
/// # Errors
/// As theirs.
pub(crate) fn existing(
    path: &Path,
    roots: Option<&Roots>,
    own_name: Option<&[u8]>,
) -> Result<Existing, Error> {
    let (mut walk, rest) = Walk::start(path, roots)?;
    let slash = path.as_os_str().as_bytes().ends_with(b"/");
    // What may be a file or a directory.
    let last = rest.file_name().filter(|_| own_name.is_some() && !slash);
    let dirs = match last {
        Some(_) => rest.parent().unwrap_or_else(|| Path::new("")),
        None => rest,
    };
    let mut missing: Option<PathBuf> = None;
    for part in dirs.components() {
        if missing.is_some() {
            walk.path.push(part);
        } else if !walk.follow(part)? {
            missing = Some(walk.path.clone());
        }
    }
    let file_name = match (last, own_name) {
        (Some(name), Some(own_name)) => {
            if missing.is_none() && walk.leads_to_dir(name)? {
                walk.follow(Component::Normal(name))?;
                Some(own_name.to_vec())
            } else {
                Some(name.as_bytes().to_vec())
            }
        }
        (_, own_name) => own_name.map(<[u8]>::to_vec),
    };
    Ok(Existing {
        dir: walk.at,
        missing,
        path: or_here(&walk.path),
        file_name,
    })
}

impl Walk<'_> {
    /// Goes on to the directory of a name; false if nothing is there.
    fn follow(&mut self, part: Component<'_>) -> Result<bool, Error> {
        self.path.push(part);
        let name = match part {
            Component::CurDir => return Ok(true),
            part => part.as_os_str(),
        };
        match self.open(name, PASSING) {
            Ok(dir) => {
                self.at = dir;
                Ok(true)
            }
            Err(Errno::NOENT) => match sys::lstat(&self.at, name.as_bytes()) {
                Ok(None) => Ok(false),
                // A link that leads nowhere.
                _ => Err(self.refused(name, Errno::NOTDIR)),
            },
            Err(errno) => Err(self.refused(name, errno)),
        }
    }
}
