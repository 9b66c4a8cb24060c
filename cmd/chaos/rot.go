package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// storeFiles returns the paths of the regular files of the embedded store in dir, with their sizes.
func storeFiles(dir string) (paths []string, sizes []int64) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		relative, _ := filepath.Rel(dir, path)
		if err != nil || !entry.Type().IsRegular() || !strings.HasPrefix(relative, storeFile) {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Size() > 0 {
			paths, sizes = append(paths, path), append(sizes, info.Size())
		}
		return nil
	})
	return paths, sizes
}

// rot damages one file of the store in dir, and returns a description of the damage. A larger file is chosen more
// often.
func rot(dir string, random *rand.Rand) string {
	paths, sizes := storeFiles(dir)
	sum := int64(0)
	for _, n := range sizes {
		sum += n
	}
	if sum == 0 {
		return "nothing"
	}
	at, i := random.Int64N(sum), 0
	for at >= sizes[i] {
		at -= sizes[i]
		i++
	}
	name, _ := filepath.Rel(dir, paths[i])
	switch kind := random.IntN(4); kind {
	case 0:
		return describe(os.Truncate(paths[i], at), "truncate %s to %d bytes", name, at)
	case 1:
		return describe(overwrite(paths[i], at&^4095, make([]byte, 4096)), "zero a page of %s at %d", name, at&^4095)
	default:
		noise := make([]byte, 1<<random.IntN(13))
		for j := range noise {
			noise[j] = byte(random.Uint32())
		}
		return describe(overwrite(paths[i], at, noise), "overwrite %d bytes of %s at %d", len(noise), name, at)
	}
}

func describe(err error, format string, about ...any) string {
	text := fmt.Sprintf(format, about...)
	if err != nil {
		text += ": " + err.Error()
	}
	return text
}

// overwrite writes bytes into an existing file, not beyond its end.
func overwrite(path string, at int64, bytes []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	_, err = file.WriteAt(bytes[:min(int64(len(bytes)), max(info.Size()-at, 0))], at)
	return err
}

// copyStore copies the files of the store from one folder to another.
func copyStore(from, to string) error {
	paths, _ := storeFiles(from)
	for _, path := range paths {
		relative, _ := filepath.Rel(from, path)
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, relative)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, relative), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeStore unlinks the files of the store.
func removeStore(dir string) {
	for _, name := range files(dir) {
		_ = os.RemoveAll(filepath.Join(dir, name))
	}
}
