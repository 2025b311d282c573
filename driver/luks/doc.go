// Package luks encrypts block devices on this node with LUKS2. It opens an encrypted device as a
// second, plain (decrypted) device, closes and resizes the plain device, and changes passphrases.
// It runs cryptsetup, and asks the kernel which devices are open.
//
// Its primary goal is not to lose data. It writes a LUKS header only to a device that it has read
// and found to be empty, and only if the caller permits formatting ([Volume.MayFormat]). A wrong
// passphrase never leads to a new header. The plain device of a newly encrypted device has random
// contents, which cannot be distinguished from data. A mark in the header therefore records that no
// data has been stored yet. The mark remains until the caller reports that the device is in use
// ([LUKS.MarkUsed]).
//
// Passphrases are passed to cryptsetup through its standard input and through in-memory files,
// never through arguments, the environment or a disk. Calls can be repeated, and a call returns
// immediately when its context ends, as in package mount.
//
// Package luks must not depend on CSI, gRPC, transports, file systems or mounts.
package luks
