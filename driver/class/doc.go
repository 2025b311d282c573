// Package class reads the parameters of Kubernetes' classes: StorageClass, VolumeAttributesClass
// and VolumeSnapshotClass.
//
// Parameters are parsed once, strictly, into one [Class], which is passed on to the code that
// creates or exports a volume. A new parameter is a field of Class and a line in the table of
// parameters.
//
// It does not depend on what is done with a Class: on other packages of the driver, on RPCs or on
// CSI. Begin with Parse (class.go).
package class
