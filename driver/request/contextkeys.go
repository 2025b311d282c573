package request

// Keys of CSI's volume and publish contexts, in addition to those of package connect. The
// controller writes them, and the node reads them. Keys that are also StorageClass parameters have
// the same names and values.
const (
	// KeyStore is the lvstore in which a volume was created. spdk-csi uses the same key.
	KeyStore = "lvstore"
	// KeyFSType is the file system of the StorageClass.
	KeyFSType = "fsType"
	// KeyMayFormat reports whether the node may create a file system on the volume if it is empty.
	// In the volume context, the value true means that the volume was created empty, not as a copy.
	// In the publish context, it means that at the time of publication, the target's state proved
	// that the volume had never been written to. A node formats a volume only if both allow it.
	KeyMayFormat = "mayFormat"
	// KeyMkfsOptions contains the options that the node uses to create a file system.
	KeyMkfsOptions = "mkfsOptions"
	// KeyFilesystemUUID is "volume" if the file system gets the volume's UUID.
	KeyFilesystemUUID = "filesystemUUID"
	// KeyEncryption is the method by which the node encrypts the volume: EncryptionLUKS2, or
	// absent. Only the volume context contains this key.
	KeyEncryption = "encryption"
	// KeyEncryptionDiscards is "true" if discards are passed on to the encrypted device.
	KeyEncryptionDiscards = "encryptionDiscards"
	// KeyClaimNamespace and KeyClaim name the PersistentVolumeClaim, for metrics. csi-provisioner
	// passes both as parameters if it runs with --extra-create-metadata.
	KeyClaimNamespace = "csi.storage.k8s.io/pvc/namespace"
	KeyClaim          = "csi.storage.k8s.io/pvc/name"
)

// EncryptionLUKS2 is the value of KeyEncryption for encryption with LUKS2.
const EncryptionLUKS2 = "luks2"
