package blobstore

import "fmt"

// SuperPage returns the content of the page that describes an lvstore, and its offset on the device
// in bytes. The page contains only the lvstore's UUID and name, so it can be restored after being
// overwritten.
func SuperPage(s Super, uuid, name string) (content []byte, offset int64, err error) {
	at := int64(s.SuperBlob) - firstID
	if at < 0 || at >= s.MetadataPages || len(uuid) != 36 || name == "" || len(name) > 63 {
		return nil, 0, fmt.Errorf("cannot create the page of lvstore %q with UUID %q", name, uuid)
	}
	p := make([]byte, PageSize)
	le.PutUint64(p, s.SuperBlob)
	b := p[16:16]
	add := func(kind byte, data []byte) {
		b = append(b, kind)
		b = le.AppendUint32(b, uint32(len(data)))
		b = append(b, data...)
	}
	add(flags, append([]byte{usesExtentTable}, make([]byte, 23)...))
	for _, a := range [][2]string{{"uuid", uuid}, {"name", name}} {
		data := le.AppendUint16(nil, uint16(len(a[0])))
		data = le.AppendUint16(data, uint16(len(a[1])+1))
		add(xattr, append(data, a[0]+a[1]+"\x00"...))
	}
	add(extentTable, make([]byte, 8))
	le.PutUint32(p[PageSize-8:], noPage)
	le.PutUint32(p[PageSize-4:], checksum(p))
	return p, s.offset(at), nil
}
