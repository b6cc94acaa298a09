// Modproxy writes the modules of tags of a Git repository into a directory that can be a GOPROXY.
// The tag fleet/v1.2.3 is version v1.2.3 of the module in the directory fleet.
//
//	modproxy REPOSITORY DIRECTORY TAG...
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("modproxy: ")
	if len(os.Args) < 4 {
		log.Fatal("usage: modproxy REPOSITORY DIRECTORY TAG...")
	}
	for _, tag := range os.Args[3:] {
		if err := add(os.Args[1], os.Args[2], tag); err != nil {
			log.Fatalf("%s: %v", tag, err)
		}
	}
}

// add writes the module of a tag. See https://go.dev/ref/mod#goproxy-protocol.
func add(repo, proxy, tag string) error {
	subdir, version := path.Split(tag)
	goMod, err := exec.CommandContext(context.Background(), "git", "-C", repo, "show", tag+":"+subdir+"go.mod").Output()
	if err != nil {
		return fmt.Errorf("git show: %w", err)
	}
	m := module.Version{Path: modfile.ModulePath(goMod), Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	var content bytes.Buffer
	if err := zip.CreateFromVCS(&content, m, repo, tag, strings.TrimSuffix(subdir, "/")); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version})
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": info,
		version + ".mod":  goMod,
		version + ".zip":  content.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return err
		}
	}
	fmt.Printf("%s %s: %d KB\n", m.Path, version, content.Len()/1000)
	return nil
}
