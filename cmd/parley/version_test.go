package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}
	for name, test := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		"a module's":                  {"v1.2.3", nil, "v1.2.3"},
		"a module's, not the dirt":    {"v1.2.3+dirty", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}, "v1.2.3+dirty"},
		"a revision":                  {"(devel)", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "0123abcd"},
		"a revision that was changed": {"", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, revision}, "0123abcd-dirty"},
		"neither":                     {"(devel)", []debug.BuildSetting{{Key: "-race", Value: "true"}}, "(devel)"},
		"nothing at all":              {"", nil, "(devel)"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}
		if got := versionOf(info); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := versionOf(nil); got != "(devel)" {
		t.Errorf("without information: %q", got)
	}
}
