package request

// Keys of CSI's volume and publish contexts, in addition to those of package connect. The
// controller writes them, and the node reads them. Keys that are also parameters of a StorageClass
// have their names and values.
const (
	// KeyStore is the lvstore that a volume was created in. spdk-csi has the same key.
	KeyStore = "lvstore"
	// KeyFSType is the file system of the StorageClass.
	KeyFSType = "fsType"
	// KeyMayFormat tells whether the node may create a file system on the volume if it is empty.
	// The value in the volume context tells whether the volume was created empty, not as a copy.
	// The value in the publish context tells whether the target, when the volume was published,
	// knew that it was never written. A node formats only if both allow it.
	KeyMayFormat = "mayFormat"
	// KeyMkfsOptions are the options with which the node creates a file system.
	KeyMkfsOptions = "mkfsOptions"
	// KeyFilesystemUUID is "volume" if the file system gets the UUID of the volume.
	KeyFilesystemUUID = "filesystemUUID"
	// KeyEncryption is how the node encrypts the volume: EncryptionLUKS2, or absent. Only the
	// volume context has it.
	KeyEncryption = "encryption"
	// KeyEncryptionDiscards is "true" if discards are passed on to the encrypted device.
	KeyEncryptionDiscards = "encryptionDiscards"
	// KeyClaimNamespace and KeyClaim name the PersistentVolumeClaim, for metrics. csi-provisioner
	// passes them as parameters if it runs with --extra-create-metadata.
	KeyClaimNamespace = "csi.storage.k8s.io/pvc/namespace"
	KeyClaim          = "csi.storage.k8s.io/pvc/name"
)

// EncryptionLUKS2 is the value of KeyEncryption for encryption with LUKS2.
const EncryptionLUKS2 = "luks2"
