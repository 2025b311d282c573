package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// fetch returns the path of a package in the cache, and downloads the package first if it is not
// there. If a mirror has replaced that version with a newer one, snapshot.debian.org still has it.
func fetch(ctx context.Context, p debian, snapshot string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "spdkgate-images", p.sha256+".deb")
	if text, err := os.ReadFile(path); err == nil && digest(text) == p.sha256 {
		return path, nil
	}
	text, err := get(ctx, mirror+p.path)
	if err != nil {
		archive, rest, _ := strings.Cut(p.path, "/")
		text, err = get(ctx, "https://snapshot.debian.org/archive/"+archive+"/"+snapshot+"/"+rest)
	}
	if err != nil {
		return "", err
	}
	if digest(text) != p.sha256 {
		return "", fmt.Errorf("the digest of %s differs from that in %s: do not use the file", p.path, lockFile)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	partial := path + fmt.Sprintf(".%d", os.Getpid())
	if err := os.WriteFile(partial, text, 0o644); err != nil {
		return "", err
	}
	return path, os.Rename(partial, path)
}
