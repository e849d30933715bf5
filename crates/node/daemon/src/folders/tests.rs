//! Folders of workers on a real disk.

use penstock_trial::wait_for;
use std::thread;

use super::*;

fn folders(name: &str) -> (PathBuf, Arc<Folders>) {
    let base = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
    _ = fs::remove_dir_all(&base);
    let folders = Folders::make_at(base.clone(), &mut None).unwrap();
    (base, Arc::new(folders))
}

/// Makes a folder whose path is too long.
fn hide_in(mut folder: PathBuf) {
    while folder.as_os_str().len() < 3_900 {
        folder.push("n".repeat(100));
    }
    fs::create_dir_all(&folder).unwrap();
    let mut mkdir = std::process::Command::new("mkdir");
    let made = mkdir.arg("n".repeat(200)).current_dir(&folder).status();
    assert!(made.unwrap().success());
}

#[test]
fn a_worker_has_a_folder_that_goes_with_it() {
    let (base, folders) = folders("own-folder");
    let (one, two) = (folders.worker(None).unwrap(), folders.worker(None).unwrap());
    assert_ne!(one.path(), two.path());
    for (_, place) in environment::places(one.path()) {
        assert!(place.is_dir(), "{}", place.display());
    }
    let path = one.path().to_owned();
    drop(one);
    wait_for("it stays", || !path.exists());
    drop((two, folders));
    assert_eq!(fs::read_dir(base.join("daemons")).unwrap().count(), 0);
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_cache_comes_back_to_its_user_only() {
    let (base, folders) = folders("kept");
    let mut first = folders.worker(None).unwrap();
    first.begin(1, Some(1000), None);
    fs::write(first.path().join("cache/pocl/kernel"), "code").unwrap();
    drop(first);
    wait_for("it is not kept", || kept_at(&base, 1000, 0).exists());
    for (user, has) in [(Some(1001), false), (None, false), (Some(1000), true)] {
        let mut later = folders.worker(None).unwrap();
        later.begin(2, user, None);
        assert_eq!(later.path().join("cache/pocl/kernel").exists(), has, "{user:?}");
        // While a session has it, another one of the same user has a cache of its own.
        if has {
            let mut beside = folders.worker(None).unwrap();
            beside.begin(3, user, None);
            assert!(!beside.path().join("cache/pocl/kernel").exists());
            assert!(beside.path().join("cache/pocl").is_dir());
        }
    }
    drop(folders);
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_link_in_place_of_a_cache_leads_nowhere() {
    let (base, folders) = folders("link");
    let target = base.join("target");
    fs::create_dir(&target).unwrap();
    let mut folder = folders.worker(None).unwrap();
    folder.begin(1, Some(7), None);
    let cache = folder.path().join("cache");
    fs::remove_dir_all(&cache).unwrap();
    std::os::unix::fs::symlink(&target, &cache).unwrap();
    fs::write(target.join("file"), [1; 5000]).unwrap();
    let path = folder.path().to_owned();
    drop(folder);
    wait_for("it stays", || !path.exists());
    assert!(!tree::is_folder(&kept_at(&base, 7, 0)) && target.join("file").exists());
    // Not even if it had got there.
    make_private(&base.join("users/7")).unwrap();
    std::os::unix::fs::symlink(&target, kept_at(&base, 7, 0)).unwrap();
    let mut later = folders.worker(None).unwrap();
    later.begin(2, Some(7), None);
    assert!(later.path().join("cache/pocl").is_dir());
    assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
    drop((later, folders));
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn the_caches_of_a_user_stay_within_the_limit() {
    let (base, folders) = folders("disk");
    let text = "[user.7]\ncache_disk = \"100K\"\n";
    let limits = penstock_quota::Limits::parse(text, Path::new("/l.toml")).unwrap();
    let limit = || DiskLimit::of(&limits, &penstock_quota::User::Number(7));
    let leave = |number: u32, bytes: usize| {
        let mut folder = folders.worker(None).unwrap();
        folder.begin(number, Some(7), limit());
        // It gets none that is kept: another session of the user has it.
        fs::write(folder.path().join("cache/pocl/kernel"), vec![1; bytes]).unwrap();
        folder
    };
    // Three sessions at the same time, so that none gets the cache of another.
    let all = [leave(1, 60_000), leave(2, 60_000), leave(3, 30_000)];
    let [first, second, third] = all;
    drop(first);
    wait_for("it is not kept", || kept_at(&base, 7, 0).exists());
    let path = second.path().to_owned();
    drop(second);
    wait_for("it stays", || !path.exists());
    // The older one went, and the newer one has its place or the next one.
    let kept = || (0..KEPT_PER_USER_MAX).filter(|slot| kept_at(&base, 7, *slot).exists()).count();
    assert_eq!(kept(), 1);
    let path = third.path().to_owned();
    drop(third);
    wait_for("it stays", || !path.exists());
    assert_eq!(kept(), 2);
    // Sessions are measured, too, and end if all together take more.
    let mut large = leave(4, 80_000);
    let small = leave(5, 40_000);
    let mut why = None;
    wait_for("nobody measures", || {
        folders.tell(Job::Measure);
        why = why.take().or(folders.full().pop());
        why.is_some()
    });
    let full = why.unwrap();
    assert_eq!(full.worker, 4);
    assert!(full.limit.unwrap().contains("cache_disk of user 7"));
    large.limit_disk(None);
    drop((large, small, folders));
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_session_without_a_user_leaves_nothing() {
    let (base, folders) = folders("no-user");
    let mut folder = folders.worker(None).unwrap();
    folder.begin(1, None, None);
    fs::write(folder.path().join("cache/pocl/kernel"), "code").unwrap();
    drop((folder, folders));
    assert_eq!(fs::read_dir(base.join("users")).unwrap().count(), 0);
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn folders_of_a_daemon_that_was_killed_are_removed() {
    let (base, folders) = folders("stale");
    let daemons = base.join("daemons");
    let (dead, lives) = (daemons.join("1-2"), folders.own.clone());
    fs::create_dir(&dead).unwrap();
    File::create(daemons.join("1-2.lock")).unwrap();
    // The daemon that removed its lock was killed before it removed the folder.
    let orphan = daemons.join("3-4");
    fs::create_dir(&orphan).unwrap();
    let other = Folders::make_at(base.clone(), &mut None).unwrap();
    wait_for("it stays", || !dead.exists() && !orphan.exists());
    assert!(lives.exists(), "a folder of a daemon that lives is gone");
    drop((folders, other));
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn daemons_that_start_at_the_same_time_keep_their_folders() {
    let base = std::env::temp_dir().join(format!("penstock-crowd-{}", std::process::id()));
    let all = thread::scope(|scope| {
        let starts = (0..8).map(|_| {
            scope.spawn(|| {
                let make = || Folders::make_at(base.clone(), &mut None).unwrap();
                (0..50).map(|_| make()).next_back()
            })
        });
        let starts: Vec<_> = starts.collect();
        starts.into_iter().filter_map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    for folders in &all {
        assert!(folders.own.is_dir() && folders.lock_path.is_file());
    }
    assert_eq!(all.len(), 8);
    drop(all);
    assert_eq!(fs::read_dir(base.join("daemons")).unwrap().count(), 0);
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_folder_is_measured_while_sessions_come_and_go() {
    let (base, folders) = folders("measured");
    let mut folder = folders.worker(None).unwrap();
    folder.begin(1, None, None);
    hide_in(folder.path().join("tmp"));
    // Again and again, another session begins before it is time to measure.
    wait_for("a measurement", || {
        folders.tell(Job::Measure);
        folders.full().iter().any(|full| full.worker == 1)
    });
    drop((folder, folders));
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_cache_that_hides_something_is_not_kept() {
    let (base, folders) = folders("hides");
    let mut folder = folders.worker(None).unwrap();
    folder.begin(1, Some(7), None);
    fs::write(folder.path().join("cache/pocl/kernel"), "code").unwrap();
    hide_in(folder.path().join("cache"));
    let path = folder.path().to_owned();
    drop(folder);
    wait_for("it stays", || !path.exists());
    assert!(!kept_at(&base, 7, 0).exists());
    drop(folders);
    fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_folder_that_others_can_change_is_refused() {
    let folder = std::env::temp_dir().join(format!("penstock-open-{}", std::process::id()));
    DirBuilder::new().mode(0o777).recursive(true).create(&folder).unwrap();
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert!(Folders::make_at(folder.clone(), &mut None).is_err());
    fs::remove_dir_all(folder).unwrap();
}
