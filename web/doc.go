// Package web embeds and serves Parley's files for browsers: the page at /, and the JavaScript client of the stream protocol
// parley.v1 under /static. It also embeds the guides in web/guides, which package server/docs renders. Package web has no code
// for sessions or models. All files are in the binary, so the page works without access to the internet.
//
// # The page
//
// There is no build step: the committed files in static are served unchanged, and the scripts are ES modules. There are no
// import cycles. Each file begins with a comment that describes its task.
//
//	page.js            entry point; owns the client and the open session, and connects everything else
//	├─ client.js       public API: REST calls and tickets
//	│  └─ connection.js   one WebSocket at a time: reconnects, subscriptions, pings
//	│     └─ track.js     frames → events, each piece of text once
//	├─ log.js          shows the messages; scrolls while a reply grows
//	│  ├─ markdown.js     streaming Markdown → elements; copy.js and languages.js for code blocks
//	│  └─ scheduler.js    DOM writes, once per frame
//	├─ sessions.js     the session list; sessionlist.js holds its data
//	├─ meter.js        the context window meter
//	├─ composer.js, chip.js, problem.js, menus.js    controls
//	├─ timing.js       time to first token, and tokens per second
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
// The log shows the history of the open session, and then the events of that session. Sending a message adds only a placeholder,
// which the page removes when the send has succeeded or failed. So messages of this tab look the same as those of other tabs, and
// a reload or reconnect shows the same messages as before.
//
// # Security
//
// Replies, titles and errors are untrusted. Four rules prevent the browser from running them as code. Tests check each rule.
//
//   - No markup from strings: no innerHTML, no DOMParser, no style or event attributes. Text becomes text nodes.
//   - The content security policy requires Trusted Types and allows no Trusted Types policy. So the browser refuses markup from
//     strings, even if code breaks the first rule.
//   - The content security policy allows files and connections of the same origin only, and no inline script or style.
//   - Links are complete http, https or mailto addresses and open in a new tab, without opener and referrer. Images become links,
//     because loading an image would contact another site.
//
// The page keeps its API key in sessionStorage, for one tab. If the fragment of the address contains a key, the page removes the
// fragment at once. The inspector records neither keys nor tickets.
//
// # Numbers
//
//   - First load: at most 60,000 bytes compressed, about a second at 0.5 Mbit/s. Tests here and in cmd/parley check this.
//   - DOM writes: 4 ms per frame in steps of 1,000 characters. Layout takes about four times as long, and a frame lasts 16 ms.
//   - History: 50 messages per request. Session list: 30 to 100 sessions per request, and one request every 30 s; with a test key
//     every 20 min, because its account has 100 requests a day.
//   - Inspector: the newest 500 entries. All frames and request bodies together have at most 4,000,000 characters, each frame,
//     body and response at most 200,000.
//   - Markdown: at most 20 nested elements, and at most 2,048 characters that the parser holds back. Within these limits,
//     rendering takes linear time.
//   - Highlighting: code of at most 40,000 characters, in slices of 4,000, because some regular expressions of the grammars take
//     more than linear time.
//   - Reconnecting: random delays. Their maximum is 0.5 s at first and doubles up to 15 s. Timeouts: 10 s for a handshake, 5 s
//     after a ping.
//
// # Third-party code
//
// static/lib contains unchanged files of two npm packages: streaming-markdown (the parser) and @speed-highlight/core (the
// tokenizer). lib/versions.json lists their versions, their licences and the hash of each file.
package web
