// Package luks encrypts block devices of this node with LUKS2. It opens an encrypted device, which
// makes a second, plain device of it, closes and resizes that, and changes passphrases. It runs
// cryptsetup, and asks the kernel which devices are open.
//
// Its first aim is to lose no data. It writes a LUKS header only to a device that was read and
// found empty, and only if the caller permits it ([Volume.MayFormat]); a passphrase that does not
// fit never leads to a new header. Until the caller says that a new device is in use
// ([LUKS.MarkUsed]), a mark in the header tells that nothing was stored on it, because the plain
// side of a new device has random contents, of which nobody can tell whether they are data.
//
// Passphrases reach cryptsetup through its standard input and through memory, never through
// arguments, the environment or a disk. Calls can be repeated, and a call whose context ends
// returns at once, as in package mount.
//
// The package knows block devices and cryptsetup. It may not know CSI, gRPC, transports, file
// systems or mounts.
package luks
