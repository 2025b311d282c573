package request

// Keys of CSI's volume and publish contexts beside those of package connect. The controller writes them, the node reads
// them.
const (
	// KeyStore is the lvstore that a volume was made in, as spdk-csi has it.
	KeyStore = "lvstore"
	// KeyFSType is the file system that the StorageClass asks for.
	KeyFSType = "fsType"
	// KeyMayFormat says whether a file system may be made on the volume if it is empty. In the volume context it tells what
	// was known when the volume was made: that it began empty, or as a copy. In the publish context it tells what the
	// target knew when the volume was published. Nodes format only what both allow.
	KeyMayFormat = "mayFormat"
)
