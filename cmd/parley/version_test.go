package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf_BuildInfo_VersionElseRevision(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}
	for name, test := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		"module version":                 {"v1.2.3", nil, "v1.2.3"},
		"module version over revision":   {"v1.2.3+dirty", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}, "v1.2.3+dirty"},
		"revision":                       {"(devel)", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "0123abcd"},
		"revision of a changed checkout": {"", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, revision}, "0123abcd-dirty"},
		"neither version nor revision":   {"(devel)", []debug.BuildSetting{{Key: "-race", Value: "true"}}, "(devel)"},
		"no information in the binary":   {"", nil, "(devel)"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}
		if got := versionOf(info); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := versionOf(nil); got != "(devel)" {
		t.Errorf("nil build info: %q, want (devel)", got)
	}
}
