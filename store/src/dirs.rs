//! Directories that are still there after a loss of power.

use std::{io, path::Path};

use host::fs::Files;

/// Makes a directory with its parents, durable with all their names.
///
/// Names are made durable even if the directory is there: whoever made it may have died before doing so.
pub(crate) async fn make_dir(files: &Files, dir: &Path) -> io::Result<()> {
    files.create_dir_all(dir).await?;
    for parent in dir.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        match files.sync_dir(parent).await {
            // A directory that may only be passed through was not made by us.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            result => result?,
        }
    }
    Ok(())
}
