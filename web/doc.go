// Package web embeds and serves Parley's files for browsers: the page at /, and the JavaScript client of the stream protocol
// parley.v1 under /static. It also embeds the guides in web/guides; package server/docs renders them. Package web knows nothing
// of sessions or models. All files are in the binary, so the page works without access to the internet.
//
// # The page
//
// There is no build step: the committed files in static are served unchanged, as ES modules. Imports form no cycle. A comment at
// the beginning of each file names its task.
//
//	page.js            entry point; owns the client and the open session, and connects everything else
//	├─ client.js       public API: REST calls and tickets
//	│  └─ connection.js   one WebSocket and its replacements: backoff, subscriptions, liveness
//	│     └─ track.js     frames → events, each piece of text once
//	├─ log.js          the messages, and scrolling with a growing reply
//	│  ├─ markdown.js     streaming Markdown → elements; copy.js and languages.js for code blocks
//	│  └─ scheduler.js    DOM writes, once per frame
//	├─ sessions.js     the session list; sessionlist.js holds its data
//	├─ meter.js        the context window meter
//	├─ composer.js, chip.js, problem.js, menus.js, timing.js    one control each
//	├─ traffic.js      records frames and calls, simulates network failures
//	├─ tools.js        loads the inspector and the failure simulator
//	└─ words.js, element.js    helpers: texts, storage, elements
//
// Modules that few visitors need are loaded on first use: highlight.js (by markdown.js), preview.js (by page.js), usage.js with
// chart.js (by page.js), inspector.js with snippets.js, and simulator.js (both by tools.js).
//
// client.js, connection.js, track.js and client.d.ts are public: other programs download them, so their names and API must not
// change.
//
// # Messages come from the server
//
// The log shows the history of the open session and then its events. Sending a message adds only a placeholder, which the page
// removes when the send has succeeded or failed. So messages of this tab and of others look alike, and a reload or reconnect
// shows the same messages as before.
//
// # Security
//
// Replies, titles and errors are untrusted. Four rules keep them from becoming code; tests check each.
//
//   - No markup from strings: no innerHTML, no DOMParser, no style or event attributes. Text becomes text nodes.
//   - Trusted Types are required and no policy may be created. So the browser refuses markup from strings, even if code breaks
//     the first rule.
//   - The content security policy allows files and connections of the same origin only, and no inline script or style.
//   - Links are complete http, https or mailto addresses and open in a new tab, without opener and referrer. Images become links,
//     because loading an image would contact another site.
//
// The page keeps its API key in sessionStorage, for one tab. It removes a key in the fragment of the address at once. The
// inspector records neither keys nor tickets.
//
// # Numbers
//
//   - First load: at most 60,000 bytes compressed, about a second at 0.5 Mbit/s. Tests here and in cmd/parley check it.
//   - DOM writes: 4 ms per frame in steps of 1,000 characters. Layout takes about four times as long, and a frame lasts 16 ms.
//   - History: 50 messages per request. Sessions: 30 or more per request, read every 30 s; with a test key every 20 min, because
//     it has 100 requests a day.
//   - Inspector: the newest 500 entries. Their frames and request bodies have at most 4,000,000 characters, each response at
//     most 200,000.
//   - Markdown: 20 nested elements, and 2,048 characters that the parser holds back. Within these limits it takes linear time.
//   - Highlighting: code of at most 40,000 characters, in slices of 4,000, because some regular expressions of the grammars take
//     more than linear time.
//   - Reconnecting: random delays of up to 0.5 s, doubling to 15 s. Timeouts: 10 s for a handshake, 5 s after a ping.
//
// # Third-party code
//
// static/lib contains unchanged files of two npm packages: streaming-markdown (the parser) and @speed-highlight/core (the
// tokenizer). lib/versions.json lists their versions, their licences and the hash of each file.
package web
