package image

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A Content adds files to an image's layer. All files belong to root.
type Content func(*layer) error

// A layer is a tar archive that is being written.
type layer struct {
	tar     *tar.Writer
	folders map[string]bool // written already
}

// Tree adds everything below a directory on this machine at the image's root. It keeps the files'
// modes.
func Tree(dir string) Content {
	return func(l *layer) error {
		return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, p)
			if err != nil || name == "." {
				return err
			}
			return l.add(p, name)
		})
	}
}

// File adds a file on this machine at a path in the image, with the given mode.
func File(from, to string, mode fs.FileMode) Content {
	return func(l *layer) error {
		file, err := os.Open(from)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		return l.write(&tar.Header{Name: to, Mode: int64(mode), Size: info.Size(), Typeflag: tar.TypeReg}, file)
	}
}

// Text adds a file with the text at a path in the image.
func Text(to, text string) Content {
	return func(l *layer) error {
		return l.write(&tar.Header{Name: to, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}, strings.NewReader(text))
	}
}

// Link adds a symbolic link.
func Link(from, to string) Content {
	return func(l *layer) error {
		return l.write(&tar.Header{Name: from, Linkname: to, Mode: 0o777, Typeflag: tar.TypeSymlink}, nil)
	}
}

// Folder adds an empty directory with the given mode, such as 0o1777 for /tmp.
func Folder(name string, mode int64) Content {
	return func(l *layer) error {
		return l.write(&tar.Header{Name: strings.Trim(name, "/") + "/", Mode: mode, Typeflag: tar.TypeDir}, nil)
	}
}

func (l *layer) add(from, name string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(from); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return l.write(header, nil)
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	return l.write(header, file)
}

// write writes an entry, after the directories that contain it.
func (l *layer) write(h *tar.Header, content io.Reader) error {
	h.Name = strings.TrimPrefix(h.Name, "/")
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	for i, c := range h.Name {
		if parent := h.Name[:i+1]; c == '/' && i+1 < len(h.Name) && !l.folders[parent] {
			if err := l.write(&tar.Header{Name: parent, Mode: 0o755, Typeflag: tar.TypeDir}, nil); err != nil {
				return err
			}
		}
	}
	if h.Typeflag == tar.TypeDir {
		if name := path.Clean(h.Name) + "/"; l.folders[name] {
			return nil
		}
		l.folders[h.Name] = true
	}
	if err := l.tar.WriteHeader(h); err != nil || content == nil {
		return err
	}
	_, err := io.Copy(l.tar, content)
	return err
}
