/** The build takes files of Lua as their text. */
declare module '*.lua' {
  const text: string;
  export default text;
}
