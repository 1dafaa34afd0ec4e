// The licences of what is bundled, as one text beside it.
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const found = [];
for (const name of ["d3-hierarchy", "@dagrejs/dagre", "@dagrejs/graphlib"]) {
  const folder = `node_modules/${name}`;
  if (!existsSync(folder)) continue;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf-8"));
  const file = ["LICENSE", "LICENSE.md", "LICENSE.txt"].find((each) => existsSync(`${folder}/${each}`));
  found.push(`${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf-8").trim()}\n`);
}
writeFileSync("../../gradof/runtime/explore/static/LICENCES.txt", found.join(`\n${"-".repeat(80)}\n\n`));
