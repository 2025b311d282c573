package spdktest

import (
	"encoding/hex"
	"slices"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A cryptoKey is a data encryption key. The simulation does not encrypt data.
type cryptoKey = spdkrpc.AccelCryptoKey

// tweakModes lists the tweak modes that the software module supports. SPDK can parse more modes
// than this module supports.
var tweakModes = []spdkrpc.AccelTweakMode{"SIMPLE_LBA", "JOIN_NEG_LBA_WITH_LBA", "INCR_512_FULL_LBA", "INCR_512_UPPER_LBA"}

func init() {
	confirm("accel_crypto_key_create", (*engine).accelCryptoKeyCreate)
	confirm("accel_crypto_key_destroy", (*engine).accelCryptoKeyDestroy)
	handle("accel_crypto_keys_get", (*engine).accelCryptoKeysGet)
	handle("bdev_crypto_create", (*engine).bdevCryptoCreate)
}

func (e *engine) cryptoKey(name string) *cryptoKey {
	i := slices.IndexFunc(e.cryptoKeys, func(k *cryptoKey) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return e.cryptoKeys[i]
}

func (e *engine) dropCryptoKey(k *cryptoKey) {
	e.cryptoKeys = slices.DeleteFunc(e.cryptoKeys, func(o *cryptoKey) bool { return o == k })
}

func (e *engine) accelCryptoKeyCreate(p spdkrpc.AccelCryptoKeyCreateParams) error {
	mode := or(p.TweakMode, tweakModes[0])
	parsable := (p.Cipher == "AES_XTS" || p.Cipher == "AES_CBC") && slices.Contains(tweakModes, mode)
	if !parsable && !e.before("v24.05") {
		return jsonrpc.Errorf(jsonrpc.CodeParseError, "spdk_json_decode_object failed")
	}
	k := &cryptoKey{Name: p.Name, Cipher: p.Cipher, Key: p.Key, Key2: p.Key2, TweakMode: &mode}
	problem := syscall.Errno(0)
	switch {
	case e.cryptoKey(p.Name) != nil:
		problem = syscall.EEXIST
	case !parsable || !usableKey(k):
		problem = syscall.EINVAL
	}
	if problem != 0 {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "failed to create DEK, rc %d", -int(problem))
	}
	e.cryptoKeys = append(e.cryptoKeys, k)
	return nil
}

// usableKey reports whether the software module supports a key. The module supports AES_XTS with
// two different keys of 128 or 256 bits and the plain block number as tweak.
func usableKey(k *cryptoKey) bool {
	first, err := hex.DecodeString(k.Key)
	second, err2 := hex.DecodeString(value(k.Key2))
	return err == nil && err2 == nil && k.Cipher == "AES_XTS" && (len(first) == 16 || len(first) == 32) && len(second) == len(first) &&
		k.Key != *k.Key2 && or(k.TweakMode, tweakModes[0]) == tweakModes[0]
}

func (e *engine) accelCryptoKeyDestroy(p spdkrpc.AccelCryptoKeyDestroyParams) error {
	k := e.cryptoKey(p.KeyName)
	if k == nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "No key object found")
	}
	e.dropCryptoKey(k)
	return nil
}

func (e *engine) accelCryptoKeysGet(p spdkrpc.AccelCryptoKeysGetParams) ([]cryptoKey, error) {
	keys := e.cryptoKeys
	if p.KeyName != nil {
		k := e.cryptoKey(*p.KeyName)
		if k == nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "key was not found")
		}
		keys = []*cryptoKey{k}
	}
	list := []cryptoKey{}
	for _, k := range keys {
		list = append(list, e.shownKey(k))
	}
	return list, nil
}

// shownKey returns a key as SPDK reports it. Since v24.05, the report includes the tweak mode.
func (e *engine) shownKey(k *cryptoKey) cryptoKey {
	shown := *k
	if e.before("v24.05") {
		shown.TweakMode = nil
	}
	return shown
}

func (e *engine) bdevCryptoCreate(p spdkrpc.BdevCryptoCreateParams) (string, error) {
	plan := stackPlan{module: "crypto", name: p.Name, base: p.BaseBdevName}
	if p.KeyName != nil {
		if plan.key = e.cryptoKey(*p.KeyName); plan.key == nil {
			return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Key was not found")
		}
		return e.stack(plan)
	}
	cipher := spdkrpc.AccelCipher(or(p.Cipher, "AES_CBC"))
	plan.key = &cryptoKey{Name: p.Name + "_" + string(cipher), Cipher: cipher, Key: value(p.Key), Key2: p.Key2}
	plan.ownKey = true
	if p.Key == nil || !usableKey(plan.key) || e.cryptoKey(plan.key.Name) != nil {
		return "", jsonrpc.Errorf(jsonrpc.CodeInternalError, "No key was found")
	}
	e.cryptoKeys = append(e.cryptoKeys, plan.key)
	name, err := e.stack(plan)
	if err != nil {
		e.dropCryptoKey(plan.key)
	}
	return name, err
}
