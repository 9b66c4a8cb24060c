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

// File serves content that does not change while the server runs. It is safe for concurrent use.
type File struct {
	contentType string
	hash        string
	content     []byte
	gzipped     func() []byte // returns compress(content), computed on first use
}

// NewFile returns a File that serves content. The caller must not change content afterwards.
func NewFile(contentType string, content []byte) *File {
	hash := sha256.Sum256(content)
	return &File{
		contentType: contentType, hash: base64.RawURLEncoding.EncodeToString(hash[:12]), content: content,
		gzipped: sync.OnceValue(func() []byte { return compress(content) }),
	}
}

// compress returns content compressed with gzip, or nil if the result is not smaller.
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

// ServeHTTP implements http.Handler for GET and HEAD. A client that accepts gzip gets the compressed content, which has its own
// ETag. Caches must revalidate (no-cache), so that browsers get the files of a new server version at once. Range requests get the
// plain content, because a client cannot decompress a part of a gzip stream.
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header, content, etag := w.Header(), f.content, `"`+f.hash+`"`
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", "no-cache")
	header.Add("Vary", "Accept-Encoding")
	if r.Header.Get("Range") == "" && acceptsGzip(r.Header.Values("Accept-Encoding")) {
		if packed := f.gzipped(); packed != nil {
			content, etag = packed, `"`+f.hash+`-gzip"`
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", etag)
	// ServeContent handles If-None-Match and ranges. Embedded files have no modification time.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether the Accept-Encoding headers (RFC 9110, section 12.5.3) give gzip a weight above 0 that is not lower
// than the weight of plain content. An item with an invalid weight has weight 0.
func acceptsGzip(fields []string) bool {
	const absent = -1.0
	weights := map[string]float64{"gzip": absent, "*": absent, "identity": absent}
	for item := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		coding, parameter, _ := strings.Cut(item, ";")
		coding = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(coding)), "x-")
		if _, known := weights[coding]; known {
			weights[coding] = weight(parameter)
		}
	}
	gzipped := weights["gzip"]
	if gzipped == absent {
		gzipped = weights["*"]
	}
	return gzipped > 0 && gzipped >= weights["identity"]
}

// weight parses the parameter of an item, for example "q=0.5". It returns 1 for "" and 0 for an invalid parameter.
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
