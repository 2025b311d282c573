package keys

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
)

// forms lists the two forms of secrets that SPDK accepts, with their hashes and the key lengths in
// bytes that each hash allows. DHHC-1 (DH-HMAC-CHAP) is defined in the NVMe base specification;
// NVMeTLSkey-1 (TLS) is defined in the NVMe TCP transport specification. Hash 00 stands for any
// hash.
var forms = map[string]map[string][]int{
	"DHHC-1":       {"00": {32, 48, 64}, "01": {32}, "02": {48}, "03": {64}},
	"NVMeTLSkey-1": {"00": {32, 48}, "01": {32}, "02": {48}},
}

var (
	errForm     = errors.New("a secret must be DHHC-1:HASH:BASE64: (DH-HMAC-CHAP; nvme gen-dhchap-key creates one) or NVMeTLSkey-1:HASH:BASE64: (TLS; nvme gen-tls-key creates one)")
	errHash     = errors.New("the secret's format does not define this hash")
	errBase64   = errors.New("the third part of the secret is not standard base64 with padding")
	errLength   = errors.New("the length of the secret does not fit its hash")
	errChecksum = errors.New("the checksum of the secret is wrong: a character may be missing or changed")
)

// CheckSecret returns an error if a secret is invalid. The error contains no part of the secret.
func CheckSecret(secret string) error {
	parts := strings.Split(secret, ":")
	if len(parts) != 4 || parts[3] != "" || forms[parts[0]] == nil {
		return errForm
	}
	lengths, ok := forms[parts[0]][parts[1]]
	if !ok {
		return errHash
	}
	key, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || strings.ContainsAny(parts[2], "\r\n") {
		return errBase64
	}
	n := len(key) - crc32.Size
	for _, length := range lengths {
		if n != length {
			continue
		}
		if binary.LittleEndian.Uint32(key[n:]) != crc32.ChecksumIEEE(key[:n]) {
			return errChecksum
		}
		return nil
	}
	return errLength
}
