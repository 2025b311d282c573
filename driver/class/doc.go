// Package class reads the parameters of Kubernetes' classes: StorageClass, VolumeAttributesClass
// and VolumeSnapshotClass.
//
// Parameters are parsed once, strictly, into one [Class], which is passed on to the code that
// creates or exports a volume. A new parameter is a field of Class and a line in the table of
// parameters.
//
// It may not know what is done with a Class: no other room of the driver, no RPC, nothing of CSI.
package class
