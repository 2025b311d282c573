package mkfs

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The mount options that are allowed for volumes, by file system. All other options are rejected.
// Some of them change what is mounted or where, name another device, or let a damaged volume crash
// the node. Examples are errors=panic, device=, logdev= and verity.hashdevice=.
var (
	optionsOfAll = words(`
		atime noatime diratime nodiratime relatime norelatime strictatime nostrictatime lazytime nolazytime suid nosuid dev nodev exec noexec
		sync async dirsync iversion noiversion silent loud nofail _netdev context fscontext defcontext rootcontext`)
	optionsOf = map[string][]string{
		Ext4: words(`
			acl noacl user_xattr nouser_xattr barrier nobarrier block_validity noblock_validity commit data data_err delalloc nodelalloc discard nodiscard
			dioread_lock dioread_nolock dax errors grpid nogrpid bsdgroups sysvgroups bsddf minixdf init_itable noinit_itable inode_readahead_blks
			journal_checksum nojournal_checksum journal_async_commit journal_ioprio auto_da_alloc noauto_da_alloc max_batch_time min_batch_time max_dir_size_kb
			nombcache no_mbcache noload norecovery stripe quota noquota usrquota grpquota prjquota resuid resgid i_version
			warn_on_error nowarn_on_error prefetch_block_bitmaps no_prefetch_block_bitmaps`),
		XFS: words(`
			allocsize attr2 noattr2 dax discard nodiscard grpid nogrpid bsdgroups sysvgroups filestreams ikeep noikeep inode32 inode64 largeio nolargeio lifetime
			logbufs logbsize noalign norecovery nouuid noquota quota usrquota uquota uqnoenforce qnoenforce grpquota gquota gqnoenforce prjquota pquota pqnoenforce
			sunit swidth swalloc wsync`),
		Btrfs: words(`
			acl noacl autodefrag noautodefrag barrier nobarrier clear_cache commit compress compress-force datacow nodatacow datasum nodatasum discard nodiscard
			flushoncommit noflushoncommit max_inline metadata_ratio nologreplay norecovery rescan_uuid_tree rescue skip_balance space_cache nospace_cache
			ssd nossd ssd_spread nossd_spread subvol subvolid thread_pool treelog notreelog usebackuproot user_subvol_rm_allowed`),
	}
	// refusedValues contains values of allowed options that are not allowed.
	refusedValues = words("errors=panic")
)

// ErrMountOption means that a mount option is not allowed.
var ErrMountOption = errors.New("mount option")

var (
	flagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_=:./@+-]*$`)
	// kubelet quotes the SELinux label of a volume, because commas separate its categories.
	labelPattern = regexp.MustCompile(`^(fs|def|root)?context="[A-Za-z0-9_:,.-]+"$`)
)

// MountOptions splits and checks mount options. Only options on the file system's list are allowed;
// fsType "" means any file system. MountOptions removes ro and rw, and reports whether ro was
// present. Errors wrap [ErrMountOption].
func MountOptions(fsType string, flags []string) (kept []string, readOnly bool, err error) {
	for _, f := range splitFlags(strings.Join(flags, ",")) {
		f = strings.TrimSpace(f)
		switch {
		case f == "" || f == "rw" || f == "defaults":
		case f == "ro":
			readOnly = true
		case !flagPattern.MatchString(f) && !labelPattern.MatchString(f):
			return nil, false, fmt.Errorf("%w %q: only letters, digits and _=:./@+- are allowed", ErrMountOption, f)
		case !allowedOption(fsType, f):
			return nil, false, fmt.Errorf("%w %q is not allowed for volumes with %s: remove it from the storage class", ErrMountOption, f, cmp.Or(fsType, "any file system"))
		case !slices.Contains(kept, f):
			kept = append(kept, f)
		}
	}
	return kept, readOnly, nil
}

// splitFlags splits at commas outside quotes.
func splitFlags(s string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}

func words(text string) []string { return strings.Fields(text) }

// allowedOption reports whether a mount option is allowed; fsType "" means any file system.
func allowedOption(fsType, option string) bool {
	name, _, _ := strings.Cut(option, "=")
	if slices.Contains(refusedValues, option) {
		return false
	}
	if slices.Contains(optionsOfAll, name) {
		return true
	}
	for fs, names := range optionsOf {
		if (fsType == fs || fsType == "") && slices.Contains(names, name) {
			return true
		}
	}
	return false
}
