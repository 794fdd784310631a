/* Search when pages are opened as files, where browsers start no worker: its script runs in a hidden frame instead. */
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const load = source => new Promise(done => {
        const script = Object.assign(inside.document.createElement("script"), {src: source, onload: done})
        inside.document.body.append(script)
      })
      inside.importScripts = (...urls) => Promise.all(urls.map(load))
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      this.loaded = load(url).then(() => inside)
    }
    postMessage(data) {
      this.loaded.then(inside => inside.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
