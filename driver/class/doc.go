// Package class reads the parameters of Kubernetes classes: StorageClass, VolumeAttributesClass and
// VolumeSnapshotClass.
//
// Parameters are parsed once, strictly, into one [Class], which is passed on to the code that
// creates or exports a volume. A new parameter needs a field in Class and a line in the table of
// parameters.
//
// Package class must not depend on the uses of a Class, so it imports no other driver packages and
// knows nothing about RPCs or CSI. Start reading at Parse (class.go).
package class
