package fleet

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// A Server describes a storage server, and how a person authenticates to it. It contains no
// secrets, only the names of the files that contain them.
type Server struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`

	// trusted certificates; if empty, the certificates that this host trusts
	CAFile       string `yaml:"ca_file"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	TokenFile    string `yaml:"token_file"`
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"` // empty if CertFile contains the key

	// InsecurePlaintext permits sending the credentials unencrypted to another host.
	InsecurePlaintext bool `yaml:"insecure_plaintext"`
}

// A list is the decoded file.
type list struct {
	Defaults Server   `yaml:"defaults"` // for servers that do not override these values
	Servers  []Server `yaml:"servers"`
}

// Load reads the file that lists storage servers. It refuses a file that every user of this host
// can change, because another user could redirect the credentials to another server. Relative paths
// in the file are relative to its directory.
func Load(path string) ([]Server, error) {
	text, err := config.ReadTrusted(path)
	if err != nil {
		return nil, err
	}
	var l list
	if err := config.DecodeStrict(text, &l); err != nil {
		return nil, config.InFile(path, err)
	}
	var wrong []error
	if len(l.Servers) == 0 {
		wrong = append(wrong, errors.New("servers is missing: list at least one, with name and url"))
	}
	if l.Defaults.Name != "" || l.Defaults.URL != "" {
		wrong = append(wrong, errors.New("defaults must not have name or url: they belong to a server"))
	}
	names, urls := map[string]int{}, map[string]string{}
	for i := range l.Servers {
		s := &l.Servers[i]
		s.inherit(l.Defaults)
		if err := s.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("servers[%d]: %w", i, err))
			continue
		}
		if first, twice := names[s.Name]; twice {
			wrong = append(wrong, fmt.Errorf("servers[%d]: servers[%d] also has the name %s: choose another name", i, first, s.Name))
		}
		if first, twice := urls[s.URL]; twice {
			wrong = append(wrong, fmt.Errorf("servers[%d]: server %s has the same url: remove one of them", i, first))
		}
		names[s.Name], urls[s.URL] = i, s.Name
		for _, file := range []*string{&s.CAFile, &s.PasswordFile, &s.TokenFile, &s.CertFile, &s.KeyFile} {
			if *file != "" && !filepath.IsAbs(*file) {
				*file = filepath.Join(filepath.Dir(path), *file)
			}
		}
	}
	if len(wrong) > 0 {
		return nil, config.InFile(path, errors.Join(wrong...))
	}
	return l.Servers, nil
}

// inherit copies values that the server does not set from the defaults. It copies credentials only
// if the server sets none at all.
func (s *Server) inherit(from Server) {
	s.InsecurePlaintext = s.InsecurePlaintext || from.InsecurePlaintext
	if s.CAFile == "" {
		s.CAFile = from.CAFile
	}
	if s.User == "" && s.PasswordFile == "" && s.TokenFile == "" && s.CertFile == "" && s.KeyFile == "" {
		s.User, s.PasswordFile, s.TokenFile, s.CertFile, s.KeyFile = from.User, from.PasswordFile, from.TokenFile, from.CertFile, from.KeyFile
	}
}

func (s *Server) check() error {
	switch {
	case s.Name == "":
		return errors.New("name is missing")
	case s.URL == "":
		return errors.New("url is missing, such as https://storage1:9009")
	case (s.User == "") != (s.PasswordFile == ""):
		return errors.New("user and password_file go together: set both for the server or both under defaults, or use token_file or cert_file")
	case s.User != "" && s.TokenFile != "":
		return errors.New("set either token_file, or user with password_file")
	case s.KeyFile != "" && s.CertFile == "":
		return errors.New("key_file needs cert_file")
	case s.User == "" && s.TokenFile == "" && s.CertFile == "":
		return errors.New("credentials are missing: set token_file, user with password_file, or cert_file, here or under defaults")
	}
	return nil
}
