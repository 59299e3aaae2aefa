import { defineConfig } from "vite";

// Two pages: the client, and the frame in which diagrams are drawn. Nothing is inlined, so that the policy of content can forbid it.
export default defineConfig({
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2000,
    reportCompressedSize: false,
    modulePreload: { polyfill: false },
    rollupOptions: { input: ["index.html", "diagram.html"] },
  },
});
