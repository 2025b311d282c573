package request

// Keys of CSI volume and publish contexts, in addition to those of package connect. The controller
// writes these keys, and the node reads them. Keys that are also StorageClass parameters have the
// same names and values.
const (
	// KeyStore is the lvstore where a volume was created. SPDK's spdk-csi uses the same key.
	KeyStore = "lvstore"
	// KeyFSType is the file system of the StorageClass.
	KeyFSType = "fsType"
	// KeyMayFormat reports whether the node may create a file system on the volume if the volume is
	// empty. In the volume context, the value true means that the volume was created empty, not as
	// a copy. In the publish context, it means that the target's state at publication proved that
	// the volume had never been written to. A node formats a volume only if both contexts allow it.
	KeyMayFormat = "mayFormat"
	// KeyMkfsOptions contains the options that the node uses to create a file system.
	KeyMkfsOptions = "mkfsOptions"
	// KeyFilesystemUUID is "volume" if the file system gets the volume's UUID.
	KeyFilesystemUUID = "filesystemUUID"
	// KeyEncryption is the method that the node uses to encrypt the volume: EncryptionLUKS2, or
	// absent. Only the volume context contains this key.
	KeyEncryption = "encryption"
	// KeyEncryptionDiscards is "true" if discards are passed on to the encrypted device.
	KeyEncryptionDiscards = "encryptionDiscards"
	// KeyClaimNamespace and KeyClaim identify the PersistentVolumeClaim, for metrics.
	// csi-provisioner passes both as parameters if it runs with --extra-create-metadata.
	KeyClaimNamespace = "csi.storage.k8s.io/pvc/namespace"
	KeyClaim          = "csi.storage.k8s.io/pvc/name"
)

// EncryptionLUKS2 is the value of KeyEncryption for encryption with LUKS2.
const EncryptionLUKS2 = "luks2"
