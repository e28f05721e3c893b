package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"time"
)

// A file is an entry of an archive.
type file struct {
	name    string
	content []byte
	mode    int64
}

// tarFiles writes an archive of files that belong to root and have the given time.
func tarFiles(w io.Writer, when time.Time, files []file) error {
	list := tar.NewWriter(w)
	for _, f := range files {
		err := list.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: when, Format: tar.FormatUSTAR})
		if err == nil {
			_, err = list.Write(f.content)
		}
		if err != nil {
			return err
		}
	}
	return list.Close()
}

// tarGz returns a compressed archive, which depends on nothing but its arguments and the version of Go.
func tarGz(when time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	err := errors.Join(tarFiles(zipped, when, files), zipped.Close())
	return out.Bytes(), err
}

// zipFiles returns a zip archive, like tarGz.
func zipFiles(when time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	list := zip.NewWriter(&out)
	for _, f := range files {
		w, err := list.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: when})
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return nil, err
		}
	}
	err := list.Close()
	return out.Bytes(), err
}
