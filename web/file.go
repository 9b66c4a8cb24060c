package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// File is a text or a picture that never changes while the server runs. It may be served by any number of goroutines.
type File struct {
	contentType string
	hash        string
	content     []byte
	gzipped     func() []byte // made at first use; nil where that would not be smaller
}

// NewFile returns a file of that content, which must not be changed any more.
func NewFile(contentType string, content []byte) *File {
	hash := sha256.Sum256(content)
	return &File{
		contentType: contentType, hash: base64.RawURLEncoding.EncodeToString(hash[:12]), content: content,
		gzipped: sync.OnceValue(func() []byte { return compress(content) }),
	}
}

// compress returns content in gzip, nil if that is not smaller.
func compress(content []byte) []byte {
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(content)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil || packed.Len() >= len(content) {
		return nil
	}
	return packed.Bytes()
}

// ServeHTTP implements http.Handler for GET and HEAD: in gzip for those who take it, each representation under an ETag of its
// own, If-None-Match answered, and kept by caches only to be asked about. Ranges are those of the content itself: a part of what
// is compressed is good for nothing.
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header, content, etag := w.Header(), f.content, `"`+f.hash+`"`
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", "no-cache")
	header.Add("Vary", "Accept-Encoding")
	if r.Header.Get("Range") == "" && takesGzip(r.Header.Values("Accept-Encoding")) {
		if packed := f.gzipped(); packed != nil {
			content, etag = packed, `"`+f.hash+`-gzip"`
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", etag)
	// ServeContent answers If-None-Match and ranges; what is embedded has no time.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// takesGzip reports whether a client that sends these Accept-Encoding (RFC 9110, 12.5.3) takes gzip, and likes it no less than the
// content as it is. What cannot be read asks for nothing.
func takesGzip(fields []string) bool {
	const unnamed = -1.0
	weights := map[string]float64{"gzip": unnamed, "*": unnamed, "identity": unnamed}
	for item := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		coding, parameter, _ := strings.Cut(item, ";")
		coding = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(coding)), "x-")
		if _, known := weights[coding]; known {
			weights[coding] = weight(parameter)
		}
	}
	gzipped := weights["gzip"]
	if gzipped == unnamed {
		gzipped = weights["*"]
	}
	return gzipped > 0 && gzipped >= weights["identity"]
}

// weight reads the parameter of an item: 1 without one, 0 where it is none.
func weight(parameter string) float64 {
	name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
	if name == "" {
		return 1
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !strings.EqualFold(strings.TrimSpace(name), "q") || !(q >= 0 && q <= 1) {
		return 0
	}
	return q
}
