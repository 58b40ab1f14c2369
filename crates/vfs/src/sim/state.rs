//! What a simulated disk is made of, and the leaves of its operations. One mutex in [`super::SimDisk`]
//! guards all of it, so the order of operations is total.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::{Effect, Fault, Kinds};
use super::folder::{Folder, InodeId, NameChange};
use super::image::PAGE_SIZE_BYTES;
use super::inode::{Change, Inode, SECTOR_SIZE_BYTES};
use super::rng::mix;
use super::{Operation, Rng};

/// What to do with an operation that [`State::begin`] let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    /// Do it as far as the effect says, then report what it says.
    Struck(Effect),
}

/// Everything behind the mutex.
#[derive(Debug)]
pub(super) struct State {
    folders: BTreeMap<PathBuf, Folder>,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    rng: Rng,
    counts: [u64; 16],
    pub(super) locks: BTreeSet<InodeId>,
    pub(super) faults: Vec<Fault>,
    pub(super) capacity_bytes: u64,
    pub(super) powered: bool,
    pub(super) digest: u64,
    pub(super) trace: Option<Vec<Operation>>,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            folders: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            rng: Rng::new(seed),
            counts: [0; 16],
            locks: BTreeSet::new(),
            faults: Vec::new(),
            capacity_bytes: u64::MAX,
            powered: true,
            digest: 0,
            trace: None,
        }
    }

    /// Counts and records an operation, and asks the faults about it.
    ///
    /// # Errors
    /// The fault's error if nothing at all happens; `EIO` without power.
    pub(super) fn begin(
        &mut self,
        kind: Kinds,
        path: &Arc<str>,
        offset: u64,
        length: u64,
        content: &[u8],
    ) -> io::Result<Verdict> {
        if !self.powered {
            return Err(eio());
        }
        self.counts[kind.bits().trailing_zeros() as usize % 16] += 1;
        // every fault counts the operation, the first that strikes decides
        let struck = self.faults.iter_mut().map(|fault| fault.strike(kind, path)).fold(None, Option::or);
        for word in [u64::from(kind.bits()), hash(path.as_bytes()), offset, length, hash(content)] {
            self.digest = mix(self.digest ^ word).wrapping_add(word);
        }
        if let Some(trace) = &mut self.trace {
            trace.push(Operation { kind, path: path.clone(), offset, length, effect: struck });
        }
        match struck {
            None => Ok(Verdict::Proceed),
            Some(Effect::Enospc) => Err(enospc()),
            Some(Effect::Emfile) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            Some(Effect::Eio) if !(Kinds::WRITE | Kinds::SYNC).contains(kind) => Err(eio()),
            Some(effect) => Ok(Verdict::Struck(effect)),
        }
    }

    /// Ends an operation that has no way of its own to be struck.
    pub(super) fn finish(&mut self, verdict: Verdict) -> io::Result<()> {
        match verdict {
            Verdict::Struck(Effect::PowerOff) => {
                self.powered = false;
                Err(eio())
            }
            Verdict::Struck(Effect::Eio) => Err(eio()),
            _ => Ok(()),
        }
    }

    pub(super) fn write(
        &mut self,
        id: InodeId,
        bytes: &[u8],
        offset: u64,
        dsync: bool,
        verdict: Verdict,
    ) -> io::Result<usize> {
        let (mut count, mut target, mut through) = (bytes.len(), offset, dsync);
        match verdict {
            Verdict::Proceed => {}
            Verdict::Struck(Effect::Lie) => return Ok(count),
            Verdict::Struck(Effect::ShortWrite(most)) => count = count.min(most),
            Verdict::Struck(Effect::Misdirect(by)) => target = offset.saturating_add_signed(by),
            Verdict::Struck(Effect::Cached) => through = false,
            Verdict::Struck(_) => through = false,
        }
        if verdict == Verdict::Struck(Effect::Eio) {
            let sectors = (count as u64).div_ceil(SECTOR_SIZE_BYTES);
            count = count.min((self.rng.below(sectors + 1) * SECTOR_SIZE_BYTES) as usize);
        }
        self.take_space(id, target, count as u64)?;
        let change = Change::Write { offset: target, bytes: bytes[..count].into() };
        let inode = self.inode(id);
        if through {
            inode.write_through(&change);
        } else {
            inode.change(change);
        }
        self.finish(verdict).map(|()| count)
    }

    pub(super) fn sync(&mut self, id: InodeId, verdict: Verdict) -> io::Result<()> {
        match verdict {
            // A sync cannot be short or go elsewhere.
            Verdict::Proceed
            | Verdict::Struck(Effect::ShortWrite(_) | Effect::Misdirect(_) | Effect::Cached) => {
                self.inode(id).sync();
            }
            Verdict::Struck(Effect::Eio) => {
                let mut rng = self.rng.fork();
                self.inode(id).fail_sync(&mut rng);
            }
            Verdict::Struck(_) => {}
        }
        self.finish(verdict)
    }

    pub(super) fn allocate(&mut self, id: InodeId, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.take_space(id, offset, length)?;
        self.inode(id).change(Change::Allocate { offset, length });
        Ok(())
    }

    fn take_space(&mut self, id: InodeId, offset: u64, length: u64) -> io::Result<()> {
        if self.capacity_bytes == u64::MAX {
            return Ok(());
        }
        let wanted = self.inode(id).live().missing_pages(offset, length) * PAGE_SIZE_BYTES;
        if self.used_bytes() + wanted > self.capacity_bytes { Err(enospc()) } else { Ok(()) }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let alive = self.inodes.values().filter(|inode| inode.names + inode.handles > 0);
        alive.map(|inode| inode.live().allocated_pages() * PAGE_SIZE_BYTES).sum()
    }

    // ---- names -------------------------------------------------------------------------------------

    pub(super) fn create_folder(&mut self, path: &Path) {
        self.folders.entry(path.to_path_buf()).or_default();
    }

    pub(super) fn folder(&mut self, path: &Path) -> io::Result<&mut Folder> {
        self.folders.get_mut(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The folder that holds `path`, and the name in it.
    fn place(&mut self, path: &Path) -> io::Result<(&mut Folder, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.folder(parent)?, name))
    }

    pub(super) fn lookup(&mut self, path: &Path) -> io::Result<InodeId> {
        let (folder, name) = self.place(path)?;
        folder.live().get(&name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<InodeId> {
        let id = self.next_inode;
        let (folder, name) = self.place(path)?;
        if folder.live().contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        folder.change(NameChange::Set { name, inode: id });
        self.next_inode += 1;
        self.inodes.insert(id, Inode::named());
        Ok(id)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.lookup(from)?;
        let replaced = match self.lookup(to) {
            Ok(same) if same == inode => return Ok(()), // two names of one file: POSIX does nothing
            found => found.ok(),
        };
        if from.parent() == to.parent() {
            let from = self.place(from)?.1;
            let (folder, to) = self.place(to)?;
            folder.change(NameChange::Move { from, to });
        } else {
            let (folder, name) = self.place(to)?;
            folder.change(NameChange::Set { name, inode });
            let (folder, name) = self.place(from)?;
            folder.change(NameChange::Remove { name });
        }
        if let Some(replaced) = replaced {
            self.inode(replaced).names -= 1;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.lookup(path)?;
        let (folder, name) = self.place(path)?;
        folder.change(NameChange::Remove { name });
        self.inode(inode).names -= 1;
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.lookup(from)?;
        let (folder, name) = self.place(to)?;
        if folder.live().contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        folder.change(NameChange::Set { name, inode });
        self.inode(inode).names += 1;
        Ok(())
    }

    pub(super) fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        self.folder(path)?.sync();
        self.forget_unreachable();
        Ok(())
    }

    pub(super) fn close(&mut self, id: InodeId) {
        let inode = self.inode(id);
        inode.handles -= 1;
        if inode.handles + inode.names == 0 {
            self.forget_unreachable();
        }
    }

    fn forget_unreachable(&mut self) {
        if self.inodes.values().all(|inode| inode.names + inode.handles > 0) {
            return;
        }
        let reachable: BTreeSet<InodeId> = self.folders.values().flat_map(Folder::reachable).collect();
        self.inodes.retain(|id, inode| inode.handles > 0 || reachable.contains(id));
    }

    /// # Panics
    /// Never for an id from [`State::lookup`], [`State::create`] or an open handle: those keep the inode.
    pub(super) fn inode(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("a name or an open handle keeps its inode")
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let files = self.folders.iter().flat_map(|(path, folder)| {
            folder.live().iter().map(|(name, id)| (path.join(name), self.inodes[id].live().len()))
        });
        files.collect()
    }

    pub(super) fn operations(&self, kinds: Kinds) -> u64 {
        let counted = (0..16_u16).filter(|&bit| kinds.bits() & (1 << bit) != 0);
        counted.map(|bit| self.counts[usize::from(bit)]).sum()
    }

    // ---- successors --------------------------------------------------------------------------------

    pub(super) fn crashed(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let folders = self.folders.iter().map(|(path, folder)| (path.clone(), folder.crashed(&mut rng)));
        let folders: BTreeMap<PathBuf, Folder> = folders.collect();
        let mut inodes = BTreeMap::new();
        for (&id, inode) in &self.inodes {
            let mut inode = inode.crashed(&mut rng);
            inode.names =
                folders.values().flat_map(|folder| folder.live().values()).filter(|&&n| n == id).count()
                    as u64;
            if inode.names > 0 {
                inodes.insert(id, inode);
            }
        }
        self.successor(folders, inodes, rng)
    }

    pub(super) fn orphaned(&self) -> Self {
        let inodes = self.inodes.iter().map(|(&id, inode)| (id, inode.orphaned())).collect();
        let mut successor = self.successor(self.folders.clone(), inodes, self.rng.clone());
        successor.forget_unreachable();
        successor
    }

    fn successor(
        &self,
        folders: BTreeMap<PathBuf, Folder>,
        inodes: BTreeMap<InodeId, Inode>,
        rng: Rng,
    ) -> Self {
        let trace = self.trace.as_ref().map(|_| Vec::new());
        let (next_inode, capacity_bytes) = (self.next_inode, self.capacity_bytes);
        Self { folders, inodes, next_inode, capacity_bytes, trace, ..Self::new(0) }.with_rng(rng)
    }

    fn with_rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn enospc() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

/// A digest of bytes, for traces only.
fn hash(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut hash = bytes.len() as u64;
    for word in words.by_ref() {
        let word = word.try_into().map(u64::from_le_bytes).expect("chunks_exact gives 8 bytes");
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    words.remainder().iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
