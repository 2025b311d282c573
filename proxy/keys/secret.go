package keys

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
)

// The two forms of secrets that SPDK takes, and which lengths their hashes allow:
// NVMe's base specification for DH-HMAC-CHAP, and its TCP transport's for TLS.
// Hash 00 stands for any of them.
var forms = map[string]map[string][]int{
	"DHHC-1":       {"00": {32, 48, 64}, "01": {32}, "02": {48}, "03": {64}},
	"NVMeTLSkey-1": {"00": {32, 48}, "01": {32}, "02": {48}},
}

var (
	errForm     = errors.New("a secret is DHHC-1:HASH:BASE64: (DH-HMAC-CHAP; nvme gen-dhchap-key makes one) or NVMeTLSkey-1:HASH:BASE64: (TLS; nvme gen-tls-key makes one)")
	errHash     = errors.New("the secret's hash is none of those that its form has")
	errBase64   = errors.New("the secret's third part is not base64 of the standard alphabet, with padding")
	errLength   = errors.New("the secret is not as long as its hash wants it")
	errChecksum = errors.New("the secret's checksum is wrong: a character may have been lost or changed on its way")
)

// CheckSecret says what is wrong with a secret, never repeating any of it.
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
